import type { IncomingMessage, ServerResponse } from 'node:http';
import { brotliDecompressSync, gzipSync } from 'node:zlib';
import { asError, LockUnavailableError } from '../../core/errors.js';
import { ASSETS, type Asset } from './assets.js';
import { headOfStream, streamTo } from './event-stream.js';
import type { LiveLocks } from './live-locks.js';
import { MOST_RELEASED, type ReleaseReply, type ReleaseRequest } from './messages.js';
import { BOARD_HEADER, whyForeign } from './own-page.js';
import { HEADERS, pageFor } from './page.js';
import { redacted } from './redacted.js';

/** Largest number of streams at a time. */
export const MOST_STREAMS = 100;

/**
 * A request and its response in the form of Node, with any framework. Code that reads `response` must
 * answer: the framework then answers no more, not even for an error.
 */
export interface Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
}

/** A request to release a lock by force, or the reason why the board refuses the request. */
type AskedRelease =
  | { readonly asked: ReleaseRequest; readonly refusal?: undefined }
  | { readonly asked?: undefined; readonly refusal: readonly [status: number, message: string] };

/**
 * Answers the requests of the page, in a Nest application and in `npx nestjs-redlock board`. A request has already
 * passed the guards.
 */
export class BoardServer {
  readonly #streams = new Set<() => void>();
  #isClosed = false;

  constructor(
    private readonly locks: LiveLocks,
    private readonly allowForceRelease: boolean,
  ) {}

  /**
   * @param url - the whole URL, before a framework removed parts of it
   * @param file - the part of the path after the board's own path; empty for the page itself
   */
  get(exchange: Exchange, url: string, file: string): void {
    const { pathname, searchParams } = new URL(url, 'http://board');
    const { request, response } = exchange;
    if (file === '') return answer(response, 200, 'text/html; charset=utf-8', pageFor(pathname));
    const asset = Object.hasOwn(ASSETS, file) ? ASSETS[file] : undefined;
    if (asset) return sendAsset(request, response, asset);
    if (file !== 'events' && file !== 'details' && file !== 'history')
      return refuse(response, 404, 'The board has no such file.');
    const foreign = whyForeign(request);
    if (foreign !== undefined) return refuse(response, 403, foreign);
    if (file === 'events') return this.#stream(request, response);
    if (file === 'history')
      return json(response, 200, this.locks.historyOf(searchParams.get('prefix') ?? ''));
    const details = this.locks.details(searchParams.get('epoch') ?? '', Number(searchParams.get('n')));
    if (!details) return refuse(response, 404, 'Nobody holds this lock any more.');
    json(response, 200, details);
  }

  /**
   * Releases a lock by force for the holders that the request names.
   *
   * @param body - the parsed body of the request
   * @param actorOf - returns the name of the user who sent the request; called only for a valid request from the
   * board's own page
   */
  async release(
    exchange: Exchange,
    body: unknown,
    actorOf: () => Promise<string | undefined>,
  ): Promise<void> {
    const { asked, refusal } = this.#asked(exchange.request, body);
    if (refusal) return refuse(exchange.response, ...refusal);
    // The filters of the application answer for an error of `actor`.
    const actor = await actorOf();
    const { response } = exchange;
    try {
      const released = await this.locks.release(asked, actor);
      if (released === undefined) return refuse(response, 404, 'Nobody holds this lock any more.');
      json(response, 200, { released } satisfies ReleaseReply);
    } catch (error) {
      const status = error instanceof LockUnavailableError ? 503 : 500;
      refuse(response, status, redacted(asError(error).message));
    }
  }

  /** Ends all streams: a server that closes waits for its open streams. */
  close(): void {
    this.#isClosed = true;
    for (const end of [...this.#streams]) end();
  }

  #asked(request: IncomingMessage, body: unknown): AskedRelease {
    const foreign = whyForeign(request);
    if (foreign !== undefined) return { refusal: [403, foreign] };
    if (request.headers[BOARD_HEADER] === undefined)
      return {
        refusal: [403, `This request does not come from the board: it has no header ${BOARD_HEADER}.`],
      };
    if (!this.allowForceRelease)
      return { refusal: [403, 'This board only shows locks: its option allowForceRelease is off.'] };
    if (!isReleaseRequest(body)) return { refusal: [400, 'Expected { epoch, n, ids }.'] };
    const { length } = body.ids;
    if (length <= MOST_RELEASED) return { asked: body };
    return {
      refusal: [
        400,
        `Expected at most ${MOST_RELEASED} ids in one request, got ${length}. Send them in several requests.`,
      ],
    };
  }

  #stream(request: IncomingMessage, response: ServerResponse): void {
    if (this.#isClosed) return refuse(response, 503, 'The application is shutting down.');
    // The browser may have disconnected while a guard ran. Then the `close` event has already passed, and nothing would
    // end the stream.
    if (response.destroyed) return;
    if (request.method === 'HEAD') return headOfStream(response);
    if (this.#streams.size >= MOST_STREAMS)
      return refuse(response, 503, `The board is already open ${MOST_STREAMS} times. Close a page.`);
    const { 'last-event-id': after } = request.headers;
    const end = streamTo(response, this.locks, typeof after === 'string' ? after : undefined);
    this.#streams.add(end);
    response.once('close', () => this.#streams.delete(end));
  }
}

/** Refuses a request. The page shows `message`. */
export function refuse(response: ServerResponse, status: number, message: string): void {
  json(response, status, { message });
}

function json(response: ServerResponse, status: number, body: object): void {
  answer(response, status, 'application/json; charset=utf-8', JSON.stringify(body));
}

function answer(response: ServerResponse, status: number, type: string, body: string): void {
  response.writeHead(status, { ...HEADERS, 'content-type': type, 'cache-control': 'no-store' }).end(body);
}

function sendAsset(
  { headers }: IncomingMessage,
  response: ServerResponse,
  { type, brotli, hash }: Asset,
): void {
  const tag = `"${hash}"`;
  const common = { ...HEADERS, 'cache-control': 'no-cache', etag: tag, vary: 'accept-encoding' };
  if (headers['if-none-match'] === tag) {
    response.writeHead(304, common).end();
    return;
  }
  const accepted = String(headers['accept-encoding'] ?? '');
  // Browsers accept Brotli only over https and on the loopback interface, and always accept gzip.
  const encoding = ['br', 'gzip'].find((name) => new RegExp(`\\b${name}\\b`).test(accepted));
  const bytes = Buffer.from(brotli, 'base64');
  response.writeHead(200, {
    ...common,
    'content-type': type,
    ...(encoding !== undefined && { 'content-encoding': encoding }),
  });
  if (encoding === 'br') response.end(bytes);
  else
    response.end(encoding === 'gzip' ? gzipSync(brotliDecompressSync(bytes)) : brotliDecompressSync(bytes));
}

function isReleaseRequest(body: unknown): body is ReleaseRequest {
  if (typeof body !== 'object' || body === null) return false;
  const { epoch, n, ids } = body as Partial<Record<keyof ReleaseRequest, unknown>>;
  return (
    typeof epoch === 'string' &&
    typeof n === 'number' &&
    Array.isArray(ids) &&
    ids.length > 0 &&
    ids.every((id) => typeof id === 'string')
  );
}
