import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { type RedisServer, startRedisNodes } from '../../test/support/redis-server.js';

/** Commands that no script calls, so a client must have sent them. */
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
 * Age in milliseconds from which the restart guard lets a server vote: a ttl of ten seconds, a margin for Redis and a
 * margin for the guard.
 */
const OLD_ENOUGH_MS = 13_000;

/** Longest remaining time of a key of a lock, in milliseconds. A key that lives longer is not counted as a lock. */
const LONGEST_LOCK_MS = 60_000;

/** Real servers for a group, without persistence. All compared libraries use the same servers. */
export class Servers {
  private readonly admins: readonly Redis[];
  private readonly since = performance.now();

  private constructor(readonly all: readonly RedisServer[]) {
    this.admins = all.map((server) => server.client());
  }

  static async start(count: number): Promise<Servers> {
    const servers = new Servers(await startRedisNodes(count));
    if (count === 1) return servers;
    // The restart guard of several nodes counts from this marker. Write the marker now: the first client would write it
    // later.
    const born = `${String(Date.now()).padStart(16, '0')}:${'0'.repeat(16)}`;
    await Promise.all(servers.admins.map((admin) => admin.set('lock:redlock-node', born)));
    return servers;
  }

  get urls(): readonly string[] {
    return this.all.map(({ url }) => url);
  }

  /** Waits until the restart guard of several nodes lets them vote. A single node has no guard. */
  async oldEnough(): Promise<void> {
    if (this.all.length > 1) await sleep(Math.max(0, this.since + OLD_ENOUGH_MS - performance.now()));
  }

  /** Number of commands that clients have sent to a node, without commands of scripts; the average over the nodes. */
  sent(beside: readonly string[]): Promise<number> {
    return this.commandStats('calls', beside);
  }

  /** Microseconds that a node has spent on commands of clients, scripts included; the average over the nodes. */
  served(beside: readonly string[]): Promise<number> {
    return this.commandStats('usec', beside);
  }

  /** Number of keys on all nodes, and bytes of memory of the nodes without the memory of connections. */
  async stored(): Promise<{ keys: number; bytes: number }> {
    const each = await Promise.all(
      this.admins.map(async (admin) => {
        const info = await admin.info('memory');
        const figure = (name: string): number =>
          Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(info)?.[1] ?? NaN);
        return { keys: await admin.dbsize(), bytes: figure('used_memory') - figure('mem_clients_normal') };
      }),
    );
    const sum = (of: 'keys' | 'bytes'): number => each.reduce((total, one) => total + one[of], 0);
    return { keys: sum('keys'), bytes: sum('bytes') };
  }

  /** Milliseconds of CPU time that the first node has used. */
  async worked(): Promise<number> {
    const used = [...(await this.admins[0]!.info('cpu')).matchAll(/^used_cpu_(?:sys|user):([\d.]+)/gm)];
    return used.reduce((sum, [, seconds]) => sum + 1_000 * Number(seconds), 0);
  }

  /** Deletes the keys of a lock on the first three nodes. */
  async remove(key: string): Promise<void> {
    await this.onKeys(3, key, (admin, name) => admin.del(name));
  }

  /**
   * Largest remaining time of a lock on the first two nodes, in milliseconds; 0 if the lock has ended. `linger` is the
   * time for which the keys of a lock stay after its end.
   */
  async remaining(key: string, linger = 0): Promise<number> {
    const lives = await this.onKeys(2, key, (admin, name) => admin.pttl(name));
    return Math.max(0, ...lives.filter((life) => life <= LONGEST_LOCK_MS).map((life) => life - linger));
  }

  /** Number of locks on the first node whose keys begin with `start`. For `linger` see {@link remaining}. */
  async locksOf(start: string, linger = 0): Promise<number> {
    const admin = this.admins[0]!;
    const names = (await admin.keys('*')).filter((name) => name.includes(start));
    const lives = await Promise.all(names.map((name) => admin.pttl(name)));
    return lives.filter((life) => life > linger && life <= LONGEST_LOCK_MS).length;
  }

  private async commandStats(figure: 'calls' | 'usec', beside: readonly string[]): Promise<number> {
    const lineOf = new RegExp(`^cmdstat_([^:]+):.*?\\b${figure}=(\\d+)`);
    const counts = await Promise.all(
      this.admins.map(async (admin) => {
        const lines = (await admin.info('commandstats')).split('\r\n');
        return lines.reduce((sum, line) => {
          const [, name = '', count] = lineOf.exec(line) ?? [];
          return SENT.has(name) || beside.includes(name) ? sum + Number(count) : sum;
        }, 0);
      }),
    );
    return counts.reduce((sum, count) => sum + count, 0) / counts.length;
  }

  /** Calls `act` for each Redis key whose name contains `key`: each library makes other names from a key. */
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
