import { EventEmitter } from 'node:events';
import { Connection } from './connection.js';
import type { Link } from './link.js';

interface Pending {
  readonly resolve: (reply: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** A connection for messages (pub/sub), which connects again until it is closed. */
export class MessageClient extends EventEmitter {
  #connection: Connection | undefined;
  #isReady = false;
  #isOver = false;
  #tries = 0;
  #last = 0;
  readonly #pending = new Map<number, Pending>();

  constructor(private readonly link: Link) {
    super();
    this.setMaxListeners(0);
  }

  get stream(): { destroy(): void } | undefined {
    const connection = this.#connection;
    return (
      connection && {
        destroy: () => {
          connection.close();
          this.link.process.post(() => this.#ended(connection));
        },
      }
    );
  }

  connect(): Promise<void> {
    this.#dial();
    return Promise.resolve();
  }

  subscribe(channel: string): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (!this.#isReady || !this.#connection) return reject(new Error('not connected'));
      const id = ++this.#last;
      this.#pending.set(id, { resolve, reject });
      return this.#connection.send({ id, subscribe: channel });
    });
  }

  disconnect(): void {
    this.#isOver = true;
    this.#rejectAll();
    this.#connection?.close();
  }

  #dial(): void {
    if (this.#isOver) return;
    const connection: Connection = new Connection(this.link, {
      opened: () => {
        this.#tries = 0;
        this.#isReady = true;
        this.emit('ready');
      },
      refused: () => this.#ended(connection),
      received: (reply) => {
        if ('channel' in reply) return void this.emit('message', reply.channel, reply.text);
        this.#pending.get(reply.id)?.resolve(reply.reply);
        this.#pending.delete(reply.id);
        return undefined;
      },
      closed: () => this.#ended(connection),
    });
    this.#connection = connection;
    this.link.process.later(2_000, () => {
      if (this.#connection !== connection || this.#isReady) return;
      connection.close();
      this.#ended(connection);
    });
  }

  #ended(connection: Connection): void {
    if (this.#connection !== connection || this.#isOver) return;
    this.#connection = undefined;
    this.#isReady = false;
    this.#rejectAll();
    this.emit('close');
    if (!this.#isOver) this.link.process.later(Math.min(++this.#tries * 20, 500), () => this.#dial());
  }

  #rejectAll(): void {
    for (const { reject } of this.#pending.values()) reject(new Error('Connection is closed.'));
    this.#pending.clear();
  }
}
