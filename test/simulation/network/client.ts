import { EventEmitter } from 'node:events';
import type { Command } from '../node/commands.js';
import type { Message, Reply } from '../node/messages.js';
import { Connection } from './connection.js';
import type { Link } from './link.js';
import { MessageClient } from './message-client.js';

interface Pending {
  readonly message: Message;
  readonly resolve: (reply: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** Milliseconds for a connection attempt: of a client of the library, and of a client of the application. */
const CONNECT_LIMIT_MS = { opened: 2_000, passedIn: 10_000 };

/**
 * Behaves as a client of ioredis does. With `opened`, it has the settings of the library: it sends nothing again. A client
 * of the application sends unanswered commands again on the next connection.
 */
export class Client extends EventEmitter {
  status = 'wait';
  readonly isCluster = false;
  readonly options: { readonly host: string; readonly port: number };
  #connection: Connection | undefined;
  #pending = new Map<number, Pending>();
  /** Commands to send again on the next connection. */
  #unsent: Pending[] = [];
  #last = 0;
  #tries = 0;
  #first: { readonly resolve: () => void; readonly reject: (error: Error) => void } | undefined;

  constructor(
    readonly link: Link,
    private readonly opened: boolean,
  ) {
    super();
    this.setMaxListeners(0);
    this.options = { host: link.server.name, port: 6_379 };
  }

  get stream(): { readonly writable: boolean; destroy(): void } | undefined {
    const connection = this.#connection;
    return connection && { writable: connection.isOpen, destroy: () => this.#destroy(connection) };
  }

  connect(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#first = { resolve, reject };
      this.#dial();
    });
  }

  evalsha(name: string, keys: number, ...rest: readonly unknown[]): Promise<unknown> {
    return this.#ask({ id: 0, command: commandOf(name, keys, rest), text: false });
  }

  eval(text: string, keys: number, ...rest: readonly unknown[]): Promise<unknown> {
    return this.#ask({ id: 0, command: commandOf(text.replace('text of ', ''), keys, rest), text: true });
  }

  info(): Promise<string> {
    return this.#ask({ id: 0, info: true }) as Promise<string>;
  }

  config(): Promise<unknown> {
    return Promise.resolve(['appendfsync', 'always']);
  }

  /** One page with all locks. */
  scan(): Promise<[string, string[]]> {
    return this.#ask({ id: 0, scan: true }) as Promise<[string, string[]]>;
  }

  messages(): MessageClient {
    return new MessageClient(this.link);
  }

  disconnect(): void {
    this.status = 'end';
    const error = new Error('Connection is closed.');
    for (const { reject } of [...this.#pending.values(), ...this.#unsent]) reject(error);
    this.#pending.clear();
    this.#unsent = [];
    this.#connection?.close();
    this.emit('close');
    this.#first?.reject(error);
  }

  /** The application closes its client. */
  detach(): void {}

  #dial(): void {
    if (this.status === 'end') return;
    this.status = 'connecting';
    const connection: Connection = new Connection(this.link, {
      opened: () => {
        if (this.#connection !== connection) return;
        this.status = 'connect';
        this.emit('connect');
        this.#checkReady(connection);
      },
      refused: () => {
        if (this.#connection !== connection) return;
        this.#fail('connect ECONNREFUSED');
        this.#ended(connection);
      },
      received: (reply) => this.#received(reply),
      closed: () => this.#ended(connection),
    });
    this.#connection = connection;
    this.link.process.later(this.opened ? CONNECT_LIMIT_MS.opened : CONNECT_LIMIT_MS.passedIn, () => {
      if (this.#connection !== connection || this.status !== 'connecting') return;
      this.#fail('connect ETIMEDOUT');
      connection.close();
      this.#ended(connection);
    });
  }

  /** As ioredis does: asks whether the server is loading its data, and again until it is not. */
  #checkReady(connection: Connection): void {
    const isPresent = (): boolean => this.#connection === connection && this.status === 'connect';
    this.info().then(
      (info) => {
        if (!isPresent()) return;
        if (/^loading:1/m.test(info))
          return this.link.process.later(500, () => isPresent() && this.#checkReady(connection));
        this.status = 'ready';
        this.#tries = 0;
        this.emit('ready');
        this.#first?.resolve();
        this.#first = undefined;
        for (const each of this.#unsent.splice(0)) {
          this.#pending.set(each.message.id, each);
          connection.send(each.message);
        }
      },
      () => undefined,
    );
  }

  #destroy(connection: Connection): void {
    connection.close();
    this.link.process.post(() => this.#ended(connection));
  }

  #fail(text: string): void {
    if (this.listenerCount('error') > 0) this.emit('error', new Error(text));
  }

  #ended(connection: Connection): void {
    if (this.#connection !== connection || this.status === 'end') return;
    this.#connection = undefined;
    this.status = 'close';
    const error = new Error('Connection is closed.');
    const pending = [...this.#pending.values()];
    this.#pending = new Map();
    for (const each of pending) {
      if (!this.opened && 'command' in each.message) this.#unsent.push(each);
      else each.reject(error);
    }
    this.emit('close');
    if ((this.status as string) === 'end') return;
    this.#first?.reject(error);
    this.#first = undefined;
    this.status = 'reconnecting';
    const pause = Math.min(++this.#tries * 50, this.opened ? 1_000 : 2_000);
    this.link.process.later(pause, () => this.#dial());
  }

  #ask(asked: Message): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const message = { ...asked, id: ++this.#last };
      this.#pending.set(message.id, { message, resolve, reject });
      this.#connection?.send(message);
    });
  }

  #received(reply: Reply): void {
    if ('channel' in reply) return;
    const asked = this.#pending.get(reply.id);
    if (!asked) return;
    this.#pending.delete(reply.id);
    if (reply.reply instanceof Error) asked.reject(reply.reply);
    else asked.resolve(reply.reply);
  }
}

/** The command of a script's name and its arguments; see `simulated-scripts.ts`. */
function commandOf(name: string, keys: number, [first]: readonly unknown[]): Command {
  if (typeof first === 'object') return first as Command;
  return name === 'birth' ? { name, marked: keys === 1 } : { name: name as 'probe' };
}
