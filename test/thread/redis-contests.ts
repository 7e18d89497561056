import { Redis } from 'ioredis';
import type { AcquireOptions } from '../../lib/index.js';
import { nodesTo } from '../support/core.js';
import { type RedisServer, startRedisNodes } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { Contest, holderProgram } from './blocked-holder.js';

/** Three Redis servers, and the contests for locks on them. */
export class RedisContests {
  /** A client of the test to the first server. */
  readonly client: Redis;
  readonly #contests: Contest[] = [];

  private constructor(
    readonly program: string,
    readonly servers: readonly RedisServer[],
  ) {
    this.client = new Redis(servers[0]!.url);
  }

  static async start(program?: Parameters<typeof holderProgram>[0]): Promise<RedisContests> {
    return new RedisContests(...(await Promise.all([holderProgram(program), startRedisNodes(3)])));
  }

  async contest(
    key: string,
    options: AcquireOptions,
    nodes = 1,
    { hasClients = false, leads = false, user = '' } = {},
  ): Promise<Contest> {
    const urls = this.servers.slice(0, nodes).map(({ url }) => url);
    const urlsOfHolder = urls.map((url) => url.replace('//', `//${user}`));
    const holder = { program: this.program, urls: urlsOfHolder, key, options, hasClients, leads };
    const begun = await Contest.start(nodesTo(urls), holder);
    this.#contests.push(begun);
    return begun;
  }

  /** The lines about the clients of the first server. */
  async clients(): Promise<string[]> {
    return String(await this.client.client('LIST'))
      .trim()
      .split('\n');
  }

  async connections(): Promise<number> {
    return (await this.clients()).length;
  }

  async endContests(): Promise<void> {
    await Promise.all(this.#contests.splice(0).map((each) => each.end()));
    // Only the connection of the test is left.
    await until(async () => (await this.connections()) === 1);
  }

  async stop(): Promise<void> {
    this.client.disconnect();
    await Promise.all(this.servers.map((server) => server.stop()));
  }
}
