import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { EventEmitter } from 'node:events';
import type { ServerResponse } from 'node:http';
import { BoardServer, type Exchange, MOST_STREAMS } from '../../../lib/board/live/board-server.js';
import { streamTo } from '../../../lib/board/live/event-stream.js';
import type { LiveLocks, Viewer } from '../../../lib/board/live/live-locks.js';

/** Makes locks that send this message to each viewer as soon as it begins to watch. */
function locksWith(message: string) {
  const viewers = new Set<Viewer>();
  const asked: (string | undefined)[] = [];
  const watch = (viewer: Viewer, after?: string): (() => void) => {
    viewers.add(viewer);
    asked.push(after);
    viewer(message, '1');
    return () => viewers.delete(viewer);
  };
  return { viewers, asked, locks: { watch } as unknown as LiveLocks };
}

/** Makes a response to a browser that reads nothing until the test says so. */
function responseOf(state: { destroyed?: boolean } = {}) {
  const events = new EventEmitter();
  const response = Object.assign(events, {
    ...{ destroyed: false, isEnded: false, sent: [] as string[], ...state },
    writeHead: () => response,
    write(text: string | Buffer) {
      response.sent.push(String(text));
      return false;
    },
    end() {
      response.isEnded = true;
      events.emit('close');
    },
    destroy() {
      response.destroyed = true;
      events.emit('close');
    },
    reads: () => events.emit('drain'),
  });
  return response;
}

test('BoardServer starts no stream if the browser disconnected before the guard decided', () => {
  const { viewers, locks } = locksWith('{}');
  const response = responseOf({ destroyed: true });
  const exchange = { request: { headers: {} }, response } as unknown as Exchange;
  new BoardServer(locks, false).get(exchange, '/locks/events', 'events');
  expect(viewers.size).toBe(0);
});

describe('a stream whose browser reads slowly', () => {
  beforeEach(() => void jest.useFakeTimers());
  afterEach(() => void jest.useRealTimers());

  test('a stream sends one message at a time, and then what the browser has missed', () => {
    const { viewers, locks, asked } = locksWith('first');
    const response = responseOf();
    const end = streamTo(response as unknown as ServerResponse, locks, undefined);
    for (const viewer of viewers) viewer('missed', '2');
    jest.advanceTimersByTime(14_000);
    expect(response.sent.slice(1)).toEqual(['id: 1\ndata: first\n\n']);
    response.reads();
    expect(asked).toEqual([undefined, '1']);
    expect(viewers.size).toBe(1);
    jest.advanceTimersByTime(14_000);
    expect(response.destroyed).toBe(false);
    end();
    expect(viewers.size).toBe(0);
  });

  test('a browser that reads nothing for 15 seconds loses its connection', () => {
    const { viewers, locks } = locksWith('first');
    const response = responseOf();
    streamTo(response as unknown as ServerResponse, locks, undefined);
    jest.advanceTimersByTime(15_000);
    expect([viewers.size, response.destroyed, response.isEnded]).toEqual([0, true, false]);
  });

  test('the end of the board does not wait for a browser that reads nothing', () => {
    const { viewers, locks } = locksWith('first');
    const response = responseOf();
    const end = streamTo(response as unknown as ServerResponse, locks, undefined);
    end();
    expect([viewers.size, response.destroyed]).toEqual([0, true]);
  });
});

test('BoardServer has at most 100 streams at a time', () => {
  const { viewers, locks } = locksWith('{}');
  const server = new BoardServer(locks, false);
  const open = (): ReturnType<typeof responseOf> => {
    const response = responseOf();
    const exchange = { request: { headers: {} }, response } as unknown as Exchange;
    server.get(exchange, '/locks/events', 'events');
    return response;
  };
  const all = Array.from({ length: MOST_STREAMS }, open);
  expect(viewers.size).toBe(MOST_STREAMS);
  expect(open().isEnded).toBe(true);
  expect(viewers.size).toBe(MOST_STREAMS);
  all[0]!.destroy();
  expect(open().isEnded).toBe(false);
  server.close();
  expect(viewers.size).toBe(0);
});
