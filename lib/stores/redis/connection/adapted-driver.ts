import { EventEmitter } from 'node:events';
import type { Packed } from '../scripts/script.js';
import type { Driver, DriverOptions, Server } from './driver.js';

/** Makes a passed-in client a {@link Driver}: a client that sends a command as a list of texts. */
export abstract class AdaptedDriver extends EventEmitter implements Driver {
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

  /**
   * Sends a command. The answer, and the error of a server, have the form of ioredis.
   *
   * @param key - the first key of the command, if it has one
   */
  protected abstract ask(args: readonly string[], key: string | undefined): Promise<unknown>;

  #run(command: string, script: string, packed: Packed): Promise<unknown> {
    const [keys] = packed;
    const prefix = this.options.keyPrefix ?? '';
    const args = [command, script];
    for (let index = 0; index < packed.length; index++) {
      const text = String(packed[index]);
      args.push(index > 0 && index <= keys ? prefix + text : text);
    }
    return this.ask(args, keys > 0 ? args[3] : undefined);
  }
}
