import { randomInt } from 'node:crypto';
import { asError } from '../../../core/errors.js';
import { neutral, neutrally } from '../../../core/neutral.js';
import { withTimeout } from '../../../core/with-timeout.js';
import { type Ensemble, ensembleOf, type ZooKeeperOptions } from '../zookeeper.options.js';
import { Connection, type Login, type Session } from './connection.js';
import type { Access, Request } from './requests.js';
import { errorOf, type Failure } from './failure.js';
import { Refusal, ZooKeeperError } from './zookeeper-error.js';

/**
 * The session time-out that the client asks for, in milliseconds. The servers raise it to their `minSessionTimeout`. No
 * lock rests on the session, only the places of waiters: with a longer time-out the places of a process that was killed
 * stay for longer.
 */
const SESSION_TIMEOUT_MS = 10_000;

const NO_SESSION: Session = { id: 0n, password: Buffer.alloc(16), timeout: SESSION_TIMEOUT_MS };

/** Milliseconds after which a connection counts as one that works. */
const WORKS_AFTER_MS = 1_000;

/** The shortest and the longest pause before the next attempt to connect, in milliseconds. */
const SHORTEST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 250;

/** Time limit in milliseconds for the function that returns the password. */
const PASSWORD_LIMIT_MS = 5_000;

/** Events of a client. */
export interface ClientEvents {
  /** The client accepts requests, at first or again. No watch of an earlier connection is set any more. */
  readonly ready: () => void;
  /** The connection was lost, or an attempt to connect has failed. */
  readonly lost: () => void;
  /** A node has changed that a request has asked to watch. */
  readonly watch: (path: string) => void;
}

/**
 * A session with an ensemble of ZooKeeper servers, over one connection at a time. When the connection is lost, the
 * client goes on at the next server, in the same session if the servers still know it.
 *
 * A request without a connection fails at once, and no request is sent twice (S15).
 */
export class ZooKeeperClient {
  readonly #ensemble: Ensemble;
  #connection: Connection | undefined;
  #isReady = false;
  /** The time at which the present connection was ready, by the monotonic clock. */
  #readyAt = 0;
  #isClosed = false;
  /** Ends the wait for the password. */
  #endLogin: (() => void) | undefined;
  /** `true` from the beginning of an attempt to connect to the end of its connection. */
  #isConnecting = false;
  #session = NO_SESSION;
  #newest = 0n;
  /** The index of the server of the present or the next connection. */
  #turn: number;
  #again: NodeJS.Timeout | undefined;
  /** The failures of the servers since the last success, each with the index of its server. */
  readonly #failures = new Map<number, Failure>();
  #opening: PromiseWithResolvers | undefined;

  constructor(
    private readonly options: ZooKeeperOptions,
    private readonly events: ClientEvents,
  ) {
    this.#ensemble = ensembleOf(options.connectionString);
    // Each process begins at another server, so that no server has all connections.
    this.#turn = randomInt(this.#ensemble.servers.length);
  }

  /** The servers, for messages. */
  get address(): string {
    return (
      this.#ensemble.servers.map(({ host, port }) => `${host}:${port}`).join(',') + this.#ensemble.chroot
    );
  }

  get available(): boolean {
    return this.#isReady;
  }

  /** The path of the node in which the client sees all other nodes. */
  get top(): string {
    return this.#ensemble.chroot === '' ? '/' : '';
  }

  /** The access rights for nodes that the client creates. */
  get access(): Access {
    return this.options.auth ? 'creator' : 'world';
  }

  /**
   * Connects. Resolves when a server accepts requests. Rejects when every server has failed once; further attempts
   * follow.
   */
  open(): Promise<void> {
    if (this.#isReady) return Promise.resolve();
    if (this.#isClosed) return Promise.reject(closed());
    if (!this.#opening) {
      this.#opening = withResolvers();
      this.#failures.clear();
      if (!this.#isConnecting && !this.#again) this.#connectNeutrally();
    }
    return this.#opening.promise;
  }

  /**
   * Sends one request.
   *
   * @param limit - milliseconds for which to wait for the answer
   * @throws ZooKeeperError
   */
  ask<Reply>(request: Request<Reply>, limit: number): Promise<Reply> {
    if (this.#connection && this.#isReady) return this.#connection.ask(request, limit);
    const why = this.#failures.size > 0 ? `: ${errorOf(this.#failures.values()).message}` : '';
    return Promise.reject(new ZooKeeperError(`no server is connected${why}`, true));
  }

  /** Ends the session if the server answers within `limit` milliseconds, and the connection. */
  async close(limit: number): Promise<void> {
    this.#isClosed = true;
    this.#isReady = false;
    clearTimeout(this.#again);
    this.#endLogin?.();
    this.#opening?.reject(closed());
    this.#opening = undefined;
    await this.#connection?.close(limit);
    this.#connection = undefined;
  }

  /** A connection serves all callers, so it is made in the context of none (S30). */
  readonly #connectNeutrally = neutral(() => void this.#connect());

  async #connect(): Promise<void> {
    this.#again = undefined;
    this.#isConnecting = true;
    const index = this.#turn % this.#ensemble.servers.length;
    let login: Login | undefined;
    try {
      login = await this.#login();
    } catch (error) {
      const reason = `\`auth.password\` failed: ${asError(error).message}. Correct the function that you gave`;
      return this.#failed(index, { reason, code: Refusal.authFailed });
    }
    if (this.#isClosed) return;
    const connection = new Connection(
      {
        server: this.#ensemble.servers[index]!,
        chroot: this.#ensemble.chroot,
        tls: this.options.tls,
        login,
        session: this.#session,
        newest: this.#newest,
      },
      {
        ready: (session) => this.#ready(session),
        seen: (transaction) => {
          if (transaction > this.#newest) this.#newest = transaction;
        },
        watch: this.events.watch,
        ended: (failure) => this.#ended(index, failure),
      },
    );
    this.#connection = connection;
  }

  async #login(): Promise<Login | undefined> {
    const { auth } = this.options;
    if (!auth) return undefined;
    const { username, password, scheme = 'digest' } = auth;
    if (typeof password !== 'function') return { scheme, username, password };
    const closing = new Promise<never>((_, reject) => (this.#endLogin = () => reject(closed())));
    const given = await withTimeout(Promise.race([password(), closing]), PASSWORD_LIMIT_MS);
    return { scheme, username, password: given };
  }

  #ready(session: Session): void {
    this.#session = session;
    this.#isReady = true;
    this.#readyAt = performance.now();
    this.#failures.clear();
    this.#opening?.resolve();
    this.#opening = undefined;
    this.events.ready();
  }

  #ended(index: number, failure: Failure): void {
    this.#connection = undefined;
    // A server that ends a session which it has just made does not work.
    if (failure.code === Refusal.sessionExpired && this.#session.id !== NO_SESSION.id) {
      this.#session = NO_SESSION;
      this.#isReady = false;
      // The server works, and only the session is over.
      return this.#connectNeutrally();
    }
    this.#failed(index, failure);
  }

  #failed(index: number, failure: Failure): void {
    this.#isConnecting = false;
    if (this.#isClosed) return;
    const hasWorked = this.#isReady && performance.now() - this.#readyAt >= WORKS_AFTER_MS;
    this.#isReady = false;
    this.#failures.set(index, failure);
    this.#turn++;
    if (this.#failures.size === this.#ensemble.servers.length && this.#opening) {
      this.#opening.reject(errorOf(this.#failures.values()));
      this.#opening = undefined;
    }
    // After a loss the next server is asked at once. Without a pause, a server that ends each connection at its first
    // request would be asked without end.
    const pause = hasWorked ? 0 : randomInt(SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS);
    this.#again = neutrally(setTimeout, this.#connectNeutrally, pause);
    if (!this.#opening) this.#again.unref();
    this.events.lost();
  }
}

function closed(): ZooKeeperError {
  return new ZooKeeperError('the client was closed', true);
}

interface PromiseWithResolvers {
  readonly promise: Promise<void>;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

function withResolvers(): PromiseWithResolvers {
  let resolve: () => void = () => undefined;
  let reject: (error: Error) => void = () => undefined;
  const promise = new Promise<void>((onResolve, onReject) => {
    resolve = onResolve;
    reject = onReject;
  });
  return { promise, resolve, reject };
}
