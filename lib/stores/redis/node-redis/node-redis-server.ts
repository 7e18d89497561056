import type { DriverOptions, MessageConnection, Server, ServerAddress } from '../connection/driver.js';
import { likeIoredis } from './node-redis-driver.js';

/** A server, whose commands go through node-redis. */
export class NodeRedisServer implements Server {
  constructor(
    private readonly send: (args: readonly string[]) => Promise<unknown>,
    readonly options: DriverOptions,
    readonly messages: (at?: ServerAddress) => MessageConnection,
  ) {}

  async info(): Promise<string> {
    return String(await this.#ask(['INFO']));
  }

  /** Reads a setting. With RESP3 the answer is a map, which node-redis turns into an object. */
  async config(get: 'GET', name: string): Promise<unknown> {
    const answer = await this.#ask(['CONFIG', get, name]);
    return Array.isArray(answer) ? answer : Object.entries(answer as object).flat();
  }

  async scan(
    cursor: string,
    match: 'MATCH',
    pattern: string,
    count: 'COUNT',
    size: number,
  ): Promise<[cursor: string, keys: string[]]> {
    const answer = await this.#ask(['SCAN', cursor, match, pattern, count, String(size)]);
    return answer as [string, string[]];
  }

  async exists(key: string): Promise<number> {
    return Number(await this.#ask(['EXISTS', `${this.options.keyPrefix ?? ''}${key}`]));
  }

  #ask(args: readonly string[]): Promise<unknown> {
    return likeIoredis(this.send(args));
  }
}
