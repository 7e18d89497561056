import type { IncomingMessage } from 'node:http';
import { asError, ClosedStoreError, NoTimeError } from '../../core/errors.js';
import { NoAnswerError, withTimeout } from '../../core/with-timeout.js';
import { Connections, MOST_SOCKETS } from './connections.js';
import { endpointsOf, type EtcdOptions } from './etcd.options.js';
import type { Header } from './protocol.js';

/** Milliseconds between two checks of a cluster that does not answer. */
const PROBE_EVERY_MS = 500;

const PROBE_LIMIT_MS = 1_000;

/** Milliseconds without a request after which the process asks for the state of the cluster. */
const IDLE_MS = 10_000;

/**
 * The longest wait in milliseconds for an answer over an old connection, until the request is sent over a new one. At
 * most a quarter of the time limit, because the caller of a release waits only for half of it.
 */
const OLD_CONNECTION_LIMIT_MS = 500;

/**
 * Time limit in milliseconds for each of the two parts of a login: the function that returns the password, and the request.
 * A request that needs the login waits only for its own time limit.
 */
const LOGIN_LIMIT_MS = 5_000;

/** gRPC codes with which etcd reports that a request has no effect, now or later. */
const DID_NOTHING: readonly number[] = [3, 5, 7, 8, 9, 11, 12, 16];

const INVALID = 3;
const NOT_FOUND = 5;
const NOT_ALLOWED = 7;
const NOT_LOGGED_IN = 16;

/**
 * Messages of errors that a new login resolves, although their code is not the code for an expired token: since the
 * last login, `auth` was enabled, or users or roles were changed.
 */
const LOG_IN_AGAIN = /user name is empty|revision of auth store is old/;

/** The reason why a request got no answer, or was refused. */
export class GatewayError extends Error {
  override readonly name = 'GatewayError';

  /**
   * @param certain - `true` if the request has no effect, now or later; `false` if it may have had an effect, or may
   * still have one (S16)
   * @param code - the gRPC code, if etcd has answered
   */
  constructor(
    message: string,
    readonly certain: boolean,
    readonly code?: number,
  ) {
    super(message);
  }

  get isNotFound(): boolean {
    return this.code === NOT_FOUND;
  }

  get isNotAllowed(): boolean {
    return this.code === NOT_ALLOWED || this.code === NOT_LOGGED_IN;
  }
}

/** `true` if the request has no effect, now or later (S16). */
export function didNothing(error: unknown): boolean {
  return error instanceof NoTimeError || (error instanceof GatewayError && error.certain);
}

/**
 * A request got no answer over a connection that was used before: the other side may have ended the connection, or a
 * network may have forgotten it. A request over a new connection may get an answer at once.
 */
class OldConnectionError extends GatewayError {}

/** A login got no answer. The request that needed it was not sent. */
class LoginError extends GatewayError {}

/** An endpoint belongs to another cluster than the endpoint that answered first. */
export class OtherClusterError extends GatewayError {
  constructor(host: string) {
    super(
      `its endpoints belong to different clusters: ${host} is not in the cluster that answered before; list the members of one ` +
        'cluster. If the cluster was restored as a new cluster, restart this process after the restore of all members',
      false,
    );
  }
}

/** An answer, and the member that gave it. */
export interface Answer<Reply> {
  readonly reply: Reply;
  /** The index of the endpoint. */
  readonly from: number;
}

/** Events of the connection to the cluster. */
export interface GatewayEvents {
  readonly ready: () => void;
  readonly lost: () => void;
  /** The process has sent no request for some time, or etcd has ended an idle connection. */
  readonly idle: () => void;
}

export interface CallOptions {
  /** The index of the endpoint that must answer; by default the present endpoint. */
  readonly at?: number;
  /**
   * `true` if the request must not be executed twice.
   * @defaultValue false
   */
  readonly once?: boolean;
}

/** One request to a member. */
interface Asking {
  readonly headers: Readonly<Record<string, string>>;
  readonly limit: number;
  readonly from: number;
  readonly once: boolean;
}

interface HttpAnswer {
  readonly status: number;
  readonly content: string;
}

/** An open stream of messages. */
export interface OpenStream {
  close(): void;
  /** Ends the stream and reports the end, as if the member had ended the stream. */
  cut(): void;
}

/** The progress of a request: waiting for a connection, connecting, or possibly received by the member. */
type Progress = 'waiting' | 'connecting' | 'sent';

/**
 * The JSON gateway of a cluster, over HTTP. All requests go to one member until a request gets no answer, and then to
 * the next member. A request that may have reached a member is not repeated at another member (S15). Over a new
 * connection to the same member, a request that can be executed twice is repeated once.
 */
export class Gateway {
  readonly endpoints: readonly URL[];
  readonly #isSecure: boolean;
  readonly #connections: Connections;
  #current = 0;
  /** The number of consecutive requests without an answer. */
  #failures = 0;
  #isLost = true;
  /** The time at which all members had failed, by the monotonic clock; `undefined` while a member answers. */
  #failedAt: number | undefined;
  #isClosed = false;
  #probe: NodeJS.Timeout | undefined;
  readonly #idleTimer: NodeJS.Timeout;
  #clusterId: string | undefined;
  #token: Promise<string> | undefined;
  /** Rejects the promise of the function that returns the password. */
  #endLogin: () => void = () => undefined;
  /** The streams, with the index of their member. */
  readonly #streams = new Map<OpenStream, number>();

  constructor(
    private readonly options: EtcdOptions,
    private readonly events: GatewayEvents,
  ) {
    this.endpoints = endpointsOf(options).map((url) => new URL(url));
    this.#isSecure = this.endpoints[0]?.protocol === 'https:';
    this.#connections = new Connections(options, this.#isSecure, events.idle);
    this.#idleTimer = setTimeout(() => {
      this.#idleTimer.refresh();
      if (!this.#isLost) events.idle();
    }, IDLE_MS).unref();
  }

  /** `true` if the store can expect an answer. */
  get available(): boolean {
    return !this.#isLost;
  }

  /**
   * Sends one request. If a member certainly did not receive the request, tries the next member.
   *
   * @param limit - the time limit in milliseconds
   * @throws GatewayError, or NoTimeError when the limit passed before the request was sent
   */
  async call<Reply extends { readonly header?: Header }>(
    path: string,
    body: object,
    limit: number,
    { at, once = false }: CallOptions = {},
  ): Promise<Answer<Reply>> {
    const until = performance.now() + limit;
    for (let attempt = 1, hasLoggedIn = false; ; attempt++) {
      const from = at ?? this.#current;
      const token = this.#login();
      let began = performance.now();
      try {
        const headers = headersOf(token && (await loggedIn(token, until - performance.now())));
        const left = until - performance.now();
        if (left <= 0) throw new NoTimeError(`was not asked within ${Math.ceil(limit)} ms`);
        began = performance.now();
        const reply = await this.#ask<Reply>(path, body, { headers, limit: left, from, once });
        this.#answered(reply, from);
        return { reply, from };
      } catch (error) {
        // Any other error, such as a time limit that passed before the request was sent, does not count as a failure of
        // the member: the member may still answer.
        if (!(error instanceof GatewayError)) throw error;
        if (error.code === NOT_LOGGED_IN && token && !hasLoggedIn) {
          hasLoggedIn = true;
          this.#forget(token);
          continue;
        }
        if (!(error instanceof LoginError) && (error.code === undefined || !error.certain))
          this.#failed(from, began);
        const mayPass = error.certain && error.code === undefined && at === undefined;
        if (!mayPass || attempt >= this.endpoints.length) throw error;
      }
    }
  }

  /**
   * Begins a stream of messages, each a line of JSON.
   *
   * @param ended - called once when the stream ends, unless `close` ended it
   */
  async stream(
    path: string,
    body: object,
    onMessage: (message: unknown) => void,
    ended: () => void,
  ): Promise<OpenStream> {
    const from = this.#current;
    // With the header `hasleader`, a member that has no leader ends the stream. Without it, the member would keep the
    // stream open and send nothing.
    const headers = { ...headersOf(await this.#login()), 'grpc-metadata-hasleader': 'true' };
    const request = this.#connections.request(this.endpoints[from] as URL, { path, headers, streams: true });
    const stream: OpenStream = {
      close: () => {
        this.#streams.delete(stream);
        request.destroy();
      },
      cut: () => end(),
    };
    const end = (): void => {
      if (!this.#streams.delete(stream)) return;
      request.destroy();
      ended();
    };
    this.#streams.set(stream, from);
    request.on('socket', (socket) => socket.unref());
    request.on('error', end);
    request.on('response', (response) => {
      response.on('error', end);
      response.on('close', end);
      let rest = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => {
        const lines = (rest + chunk).split('\n');
        rest = lines.pop() ?? '';
        try {
          for (const line of lines) if (line !== '' && this.#streams.has(stream)) onMessage(JSON.parse(line));
        } catch {
          end();
        }
      });
    });
    request.end(JSON.stringify(body));
    return stream;
  }

  close(): void {
    this.#isClosed = true;
    this.#endLogin();
    clearTimeout(this.#probe);
    clearTimeout(this.#idleTimer);
    for (const stream of this.#streams.keys()) stream.close();
    this.#connections.close();
  }

  async #ask<Reply>(path: string, body: object, asking: Asking): Promise<Reply> {
    const { status, content } = await this.#sendAnyway(path, JSON.stringify(body), asking);
    let answer: unknown;
    try {
      answer = JSON.parse(content);
    } catch {
      const message = `answered ${status} and no JSON; check that its gRPC gateway is enabled (\`enable-grpc-gateway\`)`;
      throw new GatewayError(message, status === 404);
    }
    if (!isObject(answer) || (status === 200 && !('error' in answer) && !hasHeader(answer)))
      throw new GatewayError(
        `answered ${status} with a body that etcd does not send; check whether a proxy has answered`,
        false,
      );
    if (status === 200 && !('error' in answer)) return answer as Reply;
    const { message, code } = refusalOf(answer);
    if (LOG_IN_AGAIN.test(message)) throw new GatewayError(message, true, NOT_LOGGED_IN);
    throw new GatewayError(message, code !== undefined && DID_NOTHING.includes(code), code);
  }

  /**
   * Sends a request, and sends it a second time over a new connection if it got no answer over an old one. The first
   * request may have been executed, so this repetition is only for requests that can be executed twice. The others get
   * a new connection at once, if all idle ones are old.
   */
  async #sendAnyway(path: string, text: string, asking: Asking): Promise<HttpAnswer> {
    const until = performance.now() + asking.limit;
    try {
      return await this.#send(path, text, asking);
    } catch (error) {
      if (!(error instanceof OldConnectionError)) throw error;
      this.#connections.discardIdle();
      const limit = until - performance.now();
      if (asking.once || limit <= 0 || this.#isClosed) throw error;
      return await this.#send(path, text, { ...asking, limit, once: true });
    }
  }

  #send(path: string, text: string, { headers, limit, from, once }: Asking): Promise<HttpAnswer> {
    return new Promise((resolve, reject) => {
      const request = this.#connections.request(this.endpoints[from] as URL, { path, headers, fresh: once });
      let progress: Progress = 'waiting';
      const fail = (error: Error): void => {
        clearTimeout(timer);
        request.destroy();
        const { host } = this.endpoints[from] as URL;
        const Reason = request.reusedSocket && progress === 'sent' ? OldConnectionError : GatewayError;
        reject(new Reason(`${host}: ${this.#reasonOf(error)}`, progress !== 'sent'));
      };
      // If the event loop was blocked, the answer may have arrived, but Node has not read it yet. `setImmediate` lets
      // Node read the answer before the time limit takes effect.
      const failAfter = (ms: number): NodeJS.Timeout =>
        setTimeout(setImmediate, ms, () => {
          const within = `within ${Math.ceil(ms)} ms`;
          if (progress !== 'waiting') return fail(new Error(`no answer ${within}`));
          reject(new NoTimeError(`was not asked ${within}: ${MOST_SOCKETS} requests are under way already`));
          request.destroy();
        });
      let timer = failAfter(limit);
      request.on('socket', (socket) => {
        progress = socket.connecting ? 'connecting' : 'sent';
        if (socket.connecting)
          socket.once(this.#isSecure ? 'secureConnect' : 'connect', () => (progress = 'sent'));
        if (!this.#connections.use(socket) || once) return;
        clearTimeout(timer);
        timer = failAfter(Math.min(limit / 4, OLD_CONNECTION_LIMIT_MS));
      });
      request.on('error', fail);
      request.on('response', (response: IncomingMessage) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', fail);
        response.on('end', () => {
          clearTimeout(timer);
          // An answer with "Connection: close" leaves no idle connection.
          if (request.socket && request.shouldKeepAlive) this.#connections.free(request.socket);
          this.#idleTimer.refresh();
          resolve({ status: response.statusCode ?? 0, content: Buffer.concat(chunks).toString() });
        });
      });
      request.end(text);
    });
  }

  /** Adds a hint to an error. etcd closes a connection if only one of the two sides uses TLS. */
  #reasonOf(error: NodeJS.ErrnoException): string {
    const reason = error.message || String(error);
    if (error.code !== 'ECONNRESET' || this.#clusterId !== undefined) return reason;
    return `${reason}; check whether its URL must begin with ${this.#isSecure ? 'http' : 'https'}://`;
  }

  /** The token for requests, if there is a user; all requests share one login. */
  #login(): Promise<string> | undefined {
    if (this.options.username === undefined) return undefined;
    if (!this.#token) {
      const token = this.#authenticate(this.options.username);
      this.#token = token;
      token.catch((error: unknown) => {
        this.#forget(token);
        // The requests that needed the login may have ended before it, so plan the next check here.
        if (this.#isLost && error instanceof LoginError) this.#probeAfter(PROBE_EVERY_MS);
      });
    }
    return this.#token;
  }

  /** Discards an invalid token, unless another request has logged in again. */
  #forget(token: Promise<string>): void {
    if (this.#token === token) this.#token = undefined;
  }

  /**
   * The password. A function that never settles must not block all requests for ever: after the time limit, the next
   * request calls it again.
   */
  async #password(): Promise<string | undefined> {
    const { password } = this.options;
    if (typeof password !== 'function') return password;
    const closing = new Promise<never>((_, reject) => {
      this.#endLogin = () => reject(new ClosedStoreError());
    });
    try {
      return await withTimeout(Promise.race([password(), closing]), LOGIN_LIMIT_MS);
    } catch (thrown) {
      if (thrown instanceof ClosedStoreError) throw thrown;
      const message = `\`password\` failed: ${asError(thrown).message}. Correct the function that you gave as \`password\``;
      // A function that takes too long may work again later, such as when a network is up again.
      if (thrown instanceof NoAnswerError) throw new LoginError(message, true);
      throw new GatewayError(message, true, NOT_LOGGED_IN);
    }
  }

  async #authenticate(name: string): Promise<string> {
    const password = await this.#password();
    const from = this.#current;
    const began = performance.now();
    try {
      const body = { name, password };
      const { token = '' } = await this.#ask<{ token?: string }>('auth/authenticate', body, {
        headers: {},
        limit: LOGIN_LIMIT_MS,
        from,
        once: false,
      });
      return token;
    } catch (thrown) {
      const { message, code } = thrown as GatewayError;
      // Authentication is off, so requests need no token.
      if (message.includes('authentication is not enabled')) return '';
      if (code === INVALID)
        throw new GatewayError(`does not let ${name} log in: ${message}`, true, NOT_LOGGED_IN);
      this.#failed(from, began);
      // Without a login the request itself was not sent, so it certainly has no effect.
      throw new LoginError(message, true);
    }
  }

  #answered({ header }: { readonly header?: Header }, from: number): void {
    const id = header?.cluster_id;
    if (id !== undefined && (this.#clusterId ??= id) !== id)
      throw new OtherClusterError((this.endpoints[from] as URL).host);
    this.#failures = 0;
    this.#failedAt = undefined;
    if (!this.#isLost || this.#isClosed) return;
    this.#isLost = false;
    this.events.ready();
  }

  /**
   * Counts a request without a usable answer. From now on requests go to the next member, and the streams of this
   * member end. When all members have failed, a check of the cluster begins at once. The cluster counts as lost only
   * when a later request fails, too: a single connection that ends is no outage.
   *
   * @param began - the time at which the request was sent, by the monotonic clock
   */
  #failed(from: number, began: number): void {
    if (this.#isClosed) return;
    if (this.#current === from) this.#current = (from + 1) % this.endpoints.length;
    this.#failures++;
    if (this.endpoints.length > 1) for (const [stream, of] of this.#streams) if (of === from) stream.cut();
    if (this.#failures < this.endpoints.length) return;
    this.#failedAt ??= performance.now();
    if (!this.#isLost && began >= this.#failedAt) {
      this.#isLost = true;
      this.events.lost();
    }
    this.#probeAfter(this.#isLost ? PROBE_EVERY_MS : 0);
  }

  #probeAfter(pause: number): void {
    if (this.#probe || this.#isClosed) return;
    this.#probe = setTimeout(() => {
      this.#probe = undefined;
      this.call('maintenance/status', {}, PROBE_LIMIT_MS).catch(() => {
        // If a slow login has left no time for the request, `#failed` was not called, so plan the next check here.
        if (this.#isLost) this.#probeAfter(PROBE_EVERY_MS);
      });
    }, pause).unref();
  }
}

/**
 * A refusal of etcd. In streams and in the answer to a keepalive, the gateway puts the refusal into the field `error`
 * of another object.
 */
interface Refused {
  readonly error?: string | Refused;
  readonly message?: string;
  readonly code?: number;
  readonly grpc_code?: number;
}

function refusalOf(refused: Refused): { readonly message: string; readonly code: number | undefined } {
  const { error, message, code, grpc_code } = refused;
  if (isObject(error)) return refusalOf(error);
  return { message: message ?? String(error), code: code ?? grpc_code };
}

/**
 * Waits for a login within the time limit of a request.
 *
 * @throws NoTimeError when the time limit has passed
 */
async function loggedIn(token: Promise<string>, limit: number): Promise<string> {
  try {
    return await withTimeout(token, limit);
  } catch (error) {
    if (!(error instanceof NoAnswerError)) throw error;
    throw new NoTimeError(`was not asked within ${Math.ceil(limit)} ms: the login takes longer`);
  }
}

function headersOf(token: string | undefined): Record<string, string> {
  return token ? { authorization: token } : {};
}

function isObject(answer: unknown): answer is object {
  return typeof answer === 'object' && answer !== null;
}

/**
 * `true` for an answer of etcd, which has a header. In the answer to a keepalive the header is inside `result`, as in
 * streams.
 */
function hasHeader(answer: { readonly header?: unknown; readonly result?: unknown }): boolean {
  return isObject(answer.header) || (isObject(answer.result) && hasHeader(answer.result));
}
