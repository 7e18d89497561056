import { EventEmitter } from 'node:events';
import type { Driver, DriverOptions, Server } from '../connection/driver.js';
import type { Packed } from '../scripts/script.js';

/** An error of the server begins with its code, such as `NOSCRIPT` or `ERR`; an error of the client does not. */
const CODE = /^[A-Z]{2,}[A-Z_]* /;

/**
 * Makes a passed-in client of node-redis a {@link Driver}, with the commands, answers, events and error names of
 * ioredis.
 */
export abstract class NodeRedisDriver extends EventEmitter implements Driver {
  abstract readonly status: string;
  abstract readonly isCluster: boolean;
  abstract readonly options: DriverOptions;
  abstract readonly address: string;
  lastError: Error | undefined;

  constructor() {
    super();
    // Several parts of a store add listeners, for each connection, so Node must not warn of a leak.
    this.setMaxListeners(0);
  }

  abstract connect(): Promise<unknown>;
  abstract nodes(role: 'master'): readonly Server[];
  abstract attach(): void;
  abstract detach(): void;

  /** Removes the listeners only: the client belongs to the application. */
  disconnect(): void {
    this.detach();
  }

  evalsha(sha: string, ...packed: Packed): Promise<unknown> {
    return this.#run('EVALSHA', sha, packed);
  }

  eval(lua: string, ...packed: Packed): Promise<unknown> {
    return this.#run('EVAL', lua, packed);
  }

  /** @param key - the first key of the command, if it has one */
  protected abstract send(args: readonly string[], key: string | undefined): Promise<unknown>;

  #run(command: string, script: string, packed: Packed): Promise<unknown> {
    const [keys] = packed;
    const prefix = this.options.keyPrefix ?? '';
    const args = [command, script];
    for (let index = 0; index < packed.length; index++) {
      const text = String(packed[index]);
      args.push(index > 0 && index <= keys ? prefix + text : text);
    }
    return likeIoredis(this.send(args, keys > 0 ? args[3] : undefined));
  }
}

/** Gives the errors of a server the error name of ioredis, including errors inside an answer. */
export function likeIoredis<T>(answer: Promise<T>): Promise<T> {
  return answer.then(
    (reply) => {
      if (Array.isArray(reply)) for (const item of reply) named(item);
      return reply;
    },
    (error: unknown) => {
      throw named(error);
    },
  );
}

function named(value: unknown): unknown {
  if (value instanceof Error && CODE.test(value.message)) value.name = 'ReplyError';
  return value;
}
