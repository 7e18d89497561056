import type { ServerResponse } from 'node:http';
import type { LiveLocks } from './live-locks.js';
import { HEADERS } from './page.js';

/** How soon the browser tries again after the stream was cut, in milliseconds. */
const RETRY_MS = 1_000;

/** Proxies cut connections on which nothing is sent for a minute or so. */
const HEARTBEAT_MS = 15_000;

/** Who does not read as fast as it is written, such as a tab that sleeps, is cut off, and asks again: bytes. */
const MOST_UNREAD = 16 * 1_024 * 1_024;

/**
 * Sends what changes as server-sent events until the browser goes away.
 *
 * @param after - what the browser has heard last, if its stream was cut
 * @returns ends it
 */
export function streamTo(response: ServerResponse, locks: LiveLocks, after: string | undefined): () => void {
  response.writeHead(200, {
    ...HEADERS,
    'content-type': 'text/event-stream; charset=utf-8',
    // Neither compressed nor collected by what stands between; the last is for nginx.
    'cache-control': 'no-cache, no-transform',
    'x-accel-buffering': 'no',
  });
  response.write(`retry: ${RETRY_MS}\n\n`);
  const end = (): void => {
    clearInterval(heartbeat);
    stop();
    response.end();
  };
  const stop = locks.watch((message, id) => {
    response.write(`id: ${id}\ndata: ${message}\n\n`);
    if (response.writableLength > MOST_UNREAD) end();
  }, after);
  const heartbeat = setInterval(() => response.write(':\n\n'), HEARTBEAT_MS).unref();
  response.once('close', end);
  return end;
}
