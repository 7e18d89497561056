import type { DriverOptions, MessageConnection, Server, ServerAddress } from './driver.js';

/** A server behind a client of the application that sends a command as a list of texts. */
export class AdaptedServer implements Server {
  /** @param ask - sends a command; its answer, and the error of a server, have the form of ioredis */
  constructor(
    private readonly ask: (args: readonly string[]) => Promise<unknown>,
    readonly options: DriverOptions,
    readonly messages?: (at?: ServerAddress) => MessageConnection,
  ) {}

  async info(): Promise<string> {
    return String(await this.ask(['INFO']));
  }

  /** Reads a setting. With RESP3 the answer is a map, which clients turn into an object. */
  async config(get: 'GET', name: string): Promise<unknown> {
    const answer = await this.ask(['CONFIG', get, name]);
    return Array.isArray(answer) ? answer : Object.entries(answer as object).flat();
  }

  async scan(
    cursor: string,
    match: 'MATCH',
    pattern: string,
    count: 'COUNT',
    size: number,
  ): Promise<[cursor: string, keys: string[]]> {
    const answer = await this.ask(['SCAN', cursor, match, pattern, count, String(size)]);
    return answer as [string, string[]];
  }

  async exists(key: string): Promise<number> {
    return Number(await this.ask(['EXISTS', `${this.options.keyPrefix ?? ''}${key}`]));
  }
}
