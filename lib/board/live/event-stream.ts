import type { ServerResponse } from 'node:http';
import type { LiveLocks } from './live-locks.js';
import { HEADERS } from './page.js';

/** Milliseconds after which the browser connects again when the stream was interrupted. */
const RETRY_MS = 1_000;

/** Milliseconds between two comments in the stream: proxies close connections that are silent for about a minute. */
const HEARTBEAT_MS = 15_000;

/**
 * Milliseconds in which a browser must read what was sent. A browser that reads nothing, such as a suspended tab, then
 * loses its connection, and connects again when it continues.
 */
const UNREAD_LIMIT_MS = 15_000;

/** Headers of the stream. */
const STREAM_HEADERS = {
  ...HEADERS,
  'content-type': 'text/event-stream; charset=utf-8',
  // Proxies must neither compress nor buffer the stream. `x-accel-buffering` is for nginx.
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no',
};

/**
 * Sends the locks and their changes as server-sent events until the browser disconnects.
 *
 * @param after - the id of the last event that the browser received, if its stream was interrupted
 * @returns a function that ends the stream
 */
export function streamTo(response: ServerResponse, locks: LiveLocks, after: string | undefined): () => void {
  response.writeHead(200, STREAM_HEADERS);
  response.write(`retry: ${RETRY_MS}\n\n`);
  let last = after;
  let stop: (() => void) | undefined;
  let isOver = false;
  /** Runs while the browser has not read the last message. */
  let unread: NodeJS.Timeout | undefined;
  const send = (message: string, id: string): void => {
    // One message at most waits for a slow reader: the memory of the process is not its buffer.
    if (isOver || unread) return;
    last = id;
    if (!response.write(frameOf(locks, message, id)))
      unread = setTimeout(() => response.destroy(), UNREAD_LIMIT_MS).unref();
  };
  const watch = (): void => {
    const before = stop;
    // A new function, because the old one is still watching: without any viewer the looks would stop.
    stop = locks.watch((message, id) => send(message, id), last);
    before?.();
  };
  const end = (): void => {
    if (isOver) return;
    isOver = true;
    clearInterval(heartbeat);
    stop?.();
    // A reader that does not read would keep the connection open, and with it the server that closes.
    if (unread) response.destroy();
    else response.end();
    clearTimeout(unread);
  };
  const heartbeat = setInterval(() => {
    if (!unread) response.write(':\n\n');
  }, HEARTBEAT_MS).unref();
  response.once('close', end);
  response.on('drain', () => {
    if (!unread) return;
    clearTimeout(unread);
    unread = undefined;
    // Sends the changes since the last message, or everything if these are too many.
    if (!isOver) watch();
  });
  watch();
  return end;
}

/** Answers a HEAD request for the stream. */
export function headOfStream(response: ServerResponse): void {
  response.writeHead(200, STREAM_HEADERS).end();
}

interface Frame {
  readonly id: string;
  readonly message: string;
  readonly bytes: Buffer;
}

/** The last message of each board in the form in which it is sent: all its streams share the bytes. */
const frames = new WeakMap<LiveLocks, Frame>();

function frameOf(locks: LiveLocks, message: string, id: string): Buffer {
  const known = frames.get(locks);
  if (known?.id === id && known.message === message) return known.bytes;
  const bytes = Buffer.from(`id: ${id}\ndata: ${message}\n\n`);
  frames.set(locks, { id, message, bytes });
  return bytes;
}
