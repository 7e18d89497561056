import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { type RedisServer, startRedisNodes } from '../../test/support/redis-server.js';

/** Commands that scripts do not call, so that each of them was sent by a client. */
const SENT = new Set([
  'eval',
  'evalsha',
  'fcall',
  'subscribe',
  'unsubscribe',
  'psubscribe',
  'ssubscribe',
  'sunsubscribe',
  'multi',
  'exec',
  'ping',
  'blpop',
]);

/**
 * How old a server must be before the restart guard lets it vote: a ttl of ten seconds, and the two that Redis and the
 * guard take off.
 */
const OLD_ENOUGH_MS = 13_000;

/** Fencing counters live longer than that. */
const LONGEST_LOCK_MS = 60_000;

/** Real servers for a group; all contenders use the same, without persistence. */
export class Servers {
  private readonly admins: readonly Redis[];
  private readonly since = performance.now();

  private constructor(readonly all: readonly RedisServer[]) {
    this.admins = all.map((server) => server.client());
  }

  static async start(count: number): Promise<Servers> {
    const servers = new Servers(await startRedisNodes(count));
    // The guard counts from this marker, which the first client would leave.
    const born = `${String(Date.now()).padStart(16, '0')}:${'0'.repeat(16)}`;
    await Promise.all(servers.admins.map((admin) => admin.set('lock:redlock-node', born)));
    return servers;
  }

  get urls(): readonly string[] {
    return this.all.map(({ url }) => url);
  }

  /** Waits until the guard of several nodes lets them vote. A single node has none. */
  async oldEnough(): Promise<void> {
    if (this.all.length > 1) await sleep(Math.max(0, this.since + OLD_ENOUGH_MS - performance.now()));
  }

  /** How many commands clients have sent so far, per node; what scripts call is not counted. */
  async sent(beside: readonly string[]): Promise<number> {
    const counts = await Promise.all(
      this.admins.map(async (admin) => {
        const lines = (await admin.info('commandstats')).split('\r\n');
        return lines.reduce((sum, line) => {
          const [, name = '', calls] = /^cmdstat_([^:]+):calls=(\d+)/.exec(line) ?? [];
          return SENT.has(name) || beside.includes(name) ? sum + Number(calls) : sum;
        }, 0);
      }),
    );
    return counts.reduce((sum, count) => sum + count, 0) / counts.length;
  }

  /** Milliseconds of CPU time that the first node has used so far. */
  async worked(): Promise<number> {
    const used = [...(await this.admins[0]!.info('cpu')).matchAll(/^used_cpu_(?:sys|user):([\d.]+)/gm)];
    return used.reduce((sum, [, seconds]) => sum + 1_000 * Number(seconds), 0);
  }

  /** Deletes what is stored for a lock, on the first three nodes. */
  async remove(key: string): Promise<void> {
    await this.onKeys(3, key, (admin, name) => admin.del(name));
  }

  /** Milliseconds that the first two nodes still give a lock, at most; 0 when it is gone. */
  async remaining(key: string): Promise<number> {
    const lives = await this.onKeys(2, key, (admin, name) => admin.pttl(name));
    return Math.max(0, ...lives.filter((life) => life <= LONGEST_LOCK_MS));
  }

  /** How many locks whose keys begin with `start` the first node has. */
  async locksOf(start: string): Promise<number> {
    const admin = this.admins[0]!;
    const names = (await admin.keys('*')).filter((name) => name.includes(start));
    const lives = await Promise.all(names.map((name) => admin.pttl(name)));
    return lives.filter((life) => life > 0 && life <= LONGEST_LOCK_MS).length;
  }

  /** Every library makes names of its own from a key. */
  private async onKeys(
    nodes: number,
    key: string,
    act: (admin: Redis, name: string) => Promise<number>,
  ): Promise<number[]> {
    const results = await Promise.all(
      this.admins.slice(0, nodes).map(async (admin) => {
        const names = (await admin.keys('*')).filter((name) => name.includes(key));
        return Promise.all(names.map((name) => act(admin, name)));
      }),
    );
    return results.flat();
  }

  async stop(): Promise<void> {
    await Promise.all(this.all.map((server) => server.stop()));
  }
}
