import type { ServerResponse } from 'node:http';
import type { LiveLocks } from './live-locks.js';
import { HEADERS } from './page.js';

/** Milliseconds after which the browser connects again when the stream was interrupted. */
const RETRY_MS = 1_000;

/** Milliseconds between two comments in the stream: proxies close connections that are silent for about a minute. */
const HEARTBEAT_MS = 15_000;

/**
 * Largest number of bytes that may wait for a slow reader, such as a suspended tab. With more bytes the stream ends,
 * and the browser connects again.
 */
const MOST_UNREAD = 16 * 1_024 * 1_024;

/**
 * Sends the locks and their changes as server-sent events until the browser disconnects.
 *
 * @param after - the id of the last event that the browser received, if its stream was interrupted
 * @returns a function that ends the stream
 */
export function streamTo(response: ServerResponse, locks: LiveLocks, after: string | undefined): () => void {
  response.writeHead(200, {
    ...HEADERS,
    'content-type': 'text/event-stream; charset=utf-8',
    // Proxies must neither compress nor buffer the stream. `x-accel-buffering` is for nginx.
    'cache-control': 'no-cache, no-transform',
    'x-accel-buffering': 'no',
  });
  response.write(`retry: ${RETRY_MS}\n\n`);
  let stop: (() => void) | undefined;
  let isOver = false;
  const end = (): void => {
    isOver = true;
    clearInterval(heartbeat);
    stop?.();
    response.end();
  };
  const heartbeat = setInterval(() => response.write(':\n\n'), HEARTBEAT_MS).unref();
  response.once('close', end);
  stop = locks.watch((message, id) => {
    if (isOver) return;
    response.write(`id: ${id}\ndata: ${message}\n\n`);
    if (response.writableLength > MOST_UNREAD) end();
  }, after);
  // The first message may already have been too large. Then `end` ran before `stop` existed.
  if (isOver) stop();
  return end;
}
