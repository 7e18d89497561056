import { connect as connectPlain, isIP, type Socket } from 'node:net';
import { connect as connectSecurely } from 'node:tls';
import { asError } from '../../../core/errors.js';
import type { Server, TlsOptions } from '../zookeeper.options.js';
import { JuteReader, JuteWriter } from './jute.js';
import { closeSession, packetOf, type Request, sasl } from './requests.js';
import { SaslDigest } from './sasl-digest.js';
import type { Failure } from './failure.js';
import { isRefusal, Refusal, refused, ZooKeeperError } from './zookeeper-error.js';

/** Numbers of messages that are no answers to requests. */
const WATCH_XID = -1;
const PING_XID = -2;
const LOGIN_XID = -4;

const PING = 11;
const LOGIN = 100;

/** The largest request number; the next one is 1 again. */
const LAST_XID = 0x7fffffff;

/** Time limit in milliseconds for a connection and its session. */
const CONNECT_LIMIT_MS = 3_000;

/**
 * Milliseconds in which a server must send something while it has a request or a ping to answer. After them the
 * connection counts as dead: when packets are lost, TCP itself would retry for a quarter of an hour.
 */
const HUNG_AFTER_MS = 3_000;

/** Milliseconds between two checks of the connection. */
const CHECK_EVERY_MS = 500;

/**
 * The largest request in bytes. A server ends the connection for a larger one (`jute.maxbuffer`, by default 1,048,575
 * bytes), and would so fail the other requests, too.
 */
const LARGEST_REQUEST = 1_000_000;

/** The largest message that the client reads, in bytes. A larger length shows that the other side is no ZooKeeper. */
const LARGEST_MESSAGE = 64 * 1024 * 1024;

/** The session that a connection continues. */
export interface Session {
  /** 0 for a new session. */
  readonly id: bigint;
  readonly password: Buffer;
  /** Milliseconds without a message after which the servers end the session. The servers decide within their limits. */
  readonly timeout: number;
}

/** The user for a connection. */
export interface Login {
  readonly scheme: 'digest' | 'sasl';
  readonly username: string;
  readonly password: string;
}

export interface ConnectionTerms {
  readonly server: Server;
  readonly chroot: string;
  readonly tls: TlsOptions | undefined;
  readonly login: Login | undefined;
  readonly session: Session;
  /** The newest transaction that the client has seen: a server that has not seen it yet refuses the connection. */
  readonly newest: bigint;
}

export interface ConnectionEvents {
  /** The server accepts requests. If it did not know the session, this is another one. */
  readonly ready: (session: Session) => void;
  /** Called for each answer, with the newest transaction that the server has seen. */
  readonly seen: (transaction: bigint) => void;
  /** Something changed at a path that a request has asked to watch. */
  readonly watch: (path: string) => void;
  /** Called once, when the connection has ended or could not be opened, unless `close` ended it. */
  readonly ended: (failure: Failure) => void;
}

interface Pending {
  readonly answered: (from: JuteReader) => void;
  readonly failed: (error: ZooKeeperError) => void;
}

/**
 * One connection to one server. It sends each request at once and once, or not at all: a request that waits for a
 * connection could take effect after its caller has given up (S15).
 */
export class Connection {
  readonly #socket: Socket;
  readonly #opening: NodeJS.Timeout;
  readonly #checks: NodeJS.Timeout;
  readonly #pending = new Map<number, Pending>();
  #state: 'opening' | 'greeted' | 'ready' | 'ended' = 'opening';
  #session: Session;
  /** The beginning of a message whose rest has not arrived yet. */
  #received: Buffer[] = [];
  #receivedSize = 0;
  #missing = 0;
  #xid = 0;
  #heardAt = performance.now();
  /** The time of the last ping that got no answer yet. */
  #pingedAt: number | undefined;
  /** The time since which the server owes an answer; `undefined` if it owes none. */
  #owesSince: number | undefined;

  constructor(
    private readonly terms: ConnectionTerms,
    private readonly events: ConnectionEvents,
  ) {
    const { host, port } = terms.server;
    this.#session = terms.session;
    this.#socket = terms.tls
      ? connectSecurely({ host, port, ...(isIP(host) === 0 ? { servername: host } : {}), ...terms.tls })
      : connectPlain({ host, port });
    this.#socket.setNoDelay();
    this.#socket.once(terms.tls ? 'secureConnect' : 'connect', () => this.#greet());
    this.#socket.on('data', (data: Buffer) => this.#hear(data));
    this.#socket.on('error', (error) => this.#end(error.message || String(error)));
    this.#socket.on('close', () => this.#end(this.#whyClosed()));
    this.#opening = setTimeout(
      setImmediate,
      CONNECT_LIMIT_MS,
      () => this.#state !== 'ready' && this.#end(`no session within ${CONNECT_LIMIT_MS} ms`),
    );
    this.#checks = setInterval(() => this.#check(), CHECK_EVERY_MS).unref();
  }

  /**
   * Sends a request, and resolves to its answer.
   *
   * @param limit - milliseconds for which to wait for the answer
   * @throws ZooKeeperError
   */
  ask<Reply>(request: Request<Reply>, limit: number): Promise<Reply> {
    if (this.#state !== 'ready')
      return Promise.reject(new ZooKeeperError(this.#said('is not connected'), true));
    const packet = packetOf(this.#nextXid(), request, this.terms.chroot);
    if (packet.length > LARGEST_REQUEST)
      return Promise.reject(
        new ZooKeeperError(
          `a request of ${packet.length} bytes is too large for ZooKeeper; at most ${LARGEST_REQUEST} bytes are possible`,
          true,
        ),
      );
    return this.#send(packet, request, limit);
  }

  /** Ends the session if the server answers within `limit` milliseconds, and the connection. */
  async close(limit: number): Promise<void> {
    if (this.#state === 'ready') await this.ask(closeSession(), limit).catch(() => undefined);
    this.#finish();
  }

  /** Ends the connection, but not the session. */
  drop(): void {
    this.#finish();
  }

  #send<Reply>(packet: Buffer, request: Request<Reply>, limit: number): Promise<Reply> {
    const xid = this.#xid;
    return new Promise((resolve, reject) => {
      // If the event loop was blocked, the answer may have arrived, but Node has not read it yet. `setImmediate` lets
      // Node read the answer before the time limit takes effect. The entry stays: the late answer still has to find it.
      const timer = setTimeout(setImmediate, limit, () =>
        reject(new ZooKeeperError(this.#said(`no answer within ${Math.ceil(limit)} ms`), false)),
      );
      this.#pending.set(xid, {
        answered: (from) => {
          clearTimeout(timer);
          try {
            resolve(request.read(from));
          } catch (error) {
            if (error instanceof ZooKeeperError) return reject(error);
            reject(new ZooKeeperError(this.#said('sent an answer that ends too early'), false));
            throw error;
          }
        },
        failed: (error) => {
          clearTimeout(timer);
          reject(error);
        },
      });
      this.#owesSince ??= performance.now();
      this.#socket.write(packet);
    });
  }

  #nextXid(): number {
    this.#xid = this.#xid === LAST_XID ? 1 : this.#xid + 1;
    return this.#xid;
  }

  /** Asks for the session. */
  #greet(): void {
    const { newest, session } = this.terms;
    const { id, password, timeout } = session;
    const isReadOnly = false;
    this.#socket.write(
      new JuteWriter().int(0).long(newest).int(timeout).long(id).bytes(password).flag(isReadOnly).packet(),
    );
  }

  /** Logs in, after the session: a server can answer a login that it gets earlier before it answers the greeting. */
  #logIn(login: Login): void {
    if (login.scheme === 'sasl') return void this.#logInBySasl(login);
    const user = `${login.username}:${login.password}`;
    this.#socket.write(new JuteWriter().int(LOGIN_XID).int(LOGIN).int(0).text('digest').text(user).packet());
  }

  /** The server speaks first, so the first message is empty. */
  async #logInBySasl({ username, password }: Login): Promise<void> {
    const say = (message: string): Promise<string> => {
      const request = sasl(message);
      return this.#send(packetOf(this.#nextXid(), request, ''), request, CONNECT_LIMIT_MS);
    };
    try {
      const exchange = new SaslDigest(username, password);
      if (!exchange.isProof(await say(exchange.answer(await say('')))))
        throw new Error('the server does not know the password');
      if (!this.#hasEnded()) this.#becomeReady();
    } catch (error) {
      const isWrong = isRefusal(error, Refusal.authFailed, Refusal.saslRequired);
      const reason = isWrong ? 'the user or the password is wrong' : asError(error).message;
      this.#end(`did not take the login: ${reason}`, Refusal.authFailed);
    }
  }

  #hear(data: Buffer): void {
    if (this.#state === 'ended') return;
    this.#heardAt = performance.now();
    this.#receivedSize += data.length;
    this.#received.push(data);
    // Concatenates the parts of a long message once, when it is complete.
    if (this.#receivedSize < this.#missing) return;
    try {
      this.#keep(this.#readAll(this.#received.length === 1 ? data : Buffer.concat(this.#received)));
    } catch (error) {
      this.#end(`sent a message that ZooKeeper does not send (${(error as Error).message})`);
    }
  }

  #keep(rest: Buffer): void {
    this.#received = rest.length > 0 ? [rest] : [];
    this.#receivedSize = rest.length;
    this.#missing = rest.length < 4 ? 4 : 4 + rest.readInt32BE();
  }

  /** Reads all messages that are complete; returns the rest. */
  #readAll(bytes: Buffer): Buffer {
    let rest = bytes;
    while (rest.length >= 4 && !this.#hasEnded()) {
      const length = rest.readInt32BE();
      if (length < 0 || length > LARGEST_MESSAGE) throw new RangeError(`of ${length} bytes`);
      if (rest.length < 4 + length) break;
      const message = new JuteReader(rest.subarray(4, 4 + length));
      if (this.#state === 'opening') this.#welcomed(message);
      else this.#read(message);
      rest = rest.subarray(4 + length);
    }
    return rest;
  }

  /** A method, because the state changes while messages are read. */
  #hasEnded(): boolean {
    return this.#state === 'ended';
  }

  /** Reads the answer to the greeting. */
  #welcomed(from: JuteReader): void {
    from.int();
    const timeout = from.int();
    const id = from.long();
    const password = Buffer.from(from.bytes());
    // Servers before 3.4 do not send this value.
    const isReadOnly = !from.isAtEnd && from.flag();
    if (timeout <= 0) return this.#end('has ended the session', Refusal.sessionExpired);
    if (isReadOnly) return this.#end('is read-only: it has no connection to a majority of the servers');
    this.#session = { id, password, timeout };
    this.#state = 'greeted';
    const { login } = this.terms;
    if (login === undefined) this.#becomeReady();
    else this.#logIn(login);
  }

  #becomeReady(): void {
    clearTimeout(this.#opening);
    this.#state = 'ready';
    this.events.ready(this.#session);
  }

  #read(from: JuteReader): void {
    const xid = from.int();
    const transaction = from.long();
    const code = from.int();
    if (transaction > 0n) this.events.seen(transaction);
    if (xid === WATCH_XID) return this.#readWatch(from);
    if (xid === LOGIN_XID) {
      if (code !== 0) return this.#end(`refused the login: ${refused(code).message}`, Refusal.authFailed);
      return this.#becomeReady();
    }
    this.#pingedAt = undefined;
    if (xid !== PING_XID) this.#answered(xid, code, from);
    this.#owesSince = this.#pending.size > 0 ? this.#heardAt : undefined;
  }

  #answered(xid: number, code: number, from: JuteReader): void {
    const pending = this.#pending.get(xid);
    if (!pending) throw new RangeError('an answer to no request');
    this.#pending.delete(xid);
    if (code === 0) return pending.answered(from);
    pending.failed(refused(code));
    // The server refuses all further requests of this connection.
    if (code === Refusal.sessionExpired || code === Refusal.sessionMoved) this.#end(refused(code).message);
  }

  #readWatch(from: JuteReader): void {
    from.int(); // kind of the change
    from.int(); // state of the session
    const path = from.text();
    const { chroot } = this.terms;
    if (path.startsWith(chroot)) this.events.watch(path.slice(chroot.length));
  }

  /** Keeps the session alive, and ends a connection on which the server is silent. */
  #check(): void {
    if (this.#state !== 'ready') return;
    const time = performance.now();
    const owesSince = this.#owesSince ?? this.#pingedAt;
    if (owesSince !== undefined && time - Math.max(owesSince, this.#heardAt) > HUNG_AFTER_MS) {
      // When the event loop was blocked, Node has not read yet what has arrived.
      setImmediate(() => {
        if (this.#heardAt < time) this.#end(`sent nothing for ${HUNG_AFTER_MS} ms`);
      });
      return;
    }
    if (this.#pingedAt !== undefined || time - this.#heardAt < this.#session.timeout / 3 - CHECK_EVERY_MS)
      return;
    this.#pingedAt = time;
    this.#socket.write(new JuteWriter().int(PING_XID).int(PING).packet());
  }

  #whyClosed(): string {
    if (this.#state === 'ready') return 'ended the connection';
    return (
      'ended the connection before it gave a session (check that this is ZooKeeper' +
      (this.terms.tls ? ' and takes TLS at this port' : ', whether this port needs `tls`') +
      ', and whether it is connected to a majority of servers with the newest data)'
    );
  }

  get #server(): string {
    const { host, port } = this.terms.server;
    return `${host}:${port}`;
  }

  #said(message: string): string {
    return `${this.#server} ${message}`;
  }

  #end(reason: string, code?: number): void {
    if (this.#state === 'ended') return;
    this.#finish(reason);
    this.events.ended({ server: this.#server, reason, code });
  }

  /** Ends the connection; requests without an answer fail, because they may have had an effect. */
  #finish(reason = 'the connection was closed'): void {
    this.#state = 'ended';
    clearTimeout(this.#opening);
    clearInterval(this.#checks);
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    this.#socket.destroy();
    for (const { failed } of pending) failed(new ZooKeeperError(this.#said(reason), false));
  }
}
