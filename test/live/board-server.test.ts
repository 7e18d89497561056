import { expect, test } from '@jest/globals';
import type { ServerResponse } from 'node:http';
import { BoardServer, type Exchange } from '../../lib/live/board-server.js';
import { streamTo } from '../../lib/live/event-stream.js';
import type { LiveLocks, Viewer } from '../../lib/live/live-locks.js';

/** Makes locks that send this message to each viewer as soon as it begins to watch. */
function locksWith(message: string) {
  const viewers = new Set<Viewer>();
  const watch = (viewer: Viewer): (() => void) => {
    viewers.add(viewer);
    viewer(message, '1');
    return () => viewers.delete(viewer);
  };
  return { viewers, locks: { watch } as unknown as LiveLocks };
}

/** Makes a response that sends nothing, and counts the characters that it was asked to send. */
function responseOf(state: { destroyed?: boolean } = {}) {
  const response = {
    ...{ destroyed: false, writableLength: 0, isEnded: false, ...state },
    writeHead: () => response,
    write(text: string) {
      response.writableLength += text.length;
    },
    end() {
      response.isEnded = true;
    },
    once: () => response,
  };
  return response;
}

test('BoardServer starts no stream if the browser disconnected before the guard decided', () => {
  const { viewers, locks } = locksWith('{}');
  const response = responseOf({ destroyed: true });
  const exchange = { request: { headers: {} }, response } as unknown as Exchange;
  new BoardServer(locks, false).get(exchange, '/locks/events', 'events');
  expect(viewers.size).toBe(0);
});

test('streamTo ends a stream whose first message exceeds the limit for unread bytes', () => {
  const { viewers, locks } = locksWith('x'.repeat(17 * 1_024 * 1_024));
  const response = responseOf();
  streamTo(response as unknown as ServerResponse, locks, undefined);
  expect([viewers.size, response.isEnded]).toEqual([0, true]);
});
