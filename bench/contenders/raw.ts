import { createHash, randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { Contender, Release, Session } from './contender.js';

const DELETE = script(
  "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0",
);
const EXTEND = script(
  "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0",
);

function script(lua: string): { readonly lua: string; readonly sha: string } {
  return { lua, sha: createHash('sha1').update(lua).digest('hex') };
}

/**
 * A hand-written lock: `SET NX PX`, and a script that compares and deletes. With several nodes it sends the same
 * commands to all nodes, and its call settles when a majority has answered.
 */
export const raw: Contender = {
  name: 'raw',
  packages: ['ioredis'],
  quorum: true,
  sends: ['set'],
  lacks: [
    'no fencing token, time limit, drift, guard or loss signal',
    'waits by polling every 50 to 100 ms',
    'on several nodes, does not clean up after a failure',
  ],
  async open(urls) {
    const clients = urls.map((url) => new Redis(url));
    for (const client of clients) client.on('error', () => undefined);
    await majority(clients, async (client) => {
      if (client.status !== 'ready') await new Promise((resolve) => client.once('ready', resolve));
      await client.script('LOAD', DELETE.lua);
      await client.script('LOAD', EXTEND.lua);
      return true;
    });
    return new RawSession(clients);
  },
};

class RawSession implements Session {
  constructor(private readonly clients: readonly Redis[]) {}

  async acquire(key: string, ttl: number): Promise<Release> {
    const id = randomBytes(16).toString('hex');
    if (!(await this.tryToSet(key, id, ttl))) throw new Error(`${key} is held`);
    return () => this.compareAndDelete(key, id);
  }

  async withLock(key: string, ttl: number, task: () => Promise<void>): Promise<void> {
    const release = await this.acquire(key, ttl);
    try {
      await task();
    } finally {
      await release();
    }
  }

  async wait(key: string, ttl: number): Promise<Release> {
    for (;;) {
      const id = randomBytes(16).toString('hex');
      if (await this.tryToSet(key, id, ttl)) return () => this.compareAndDelete(key, id);
      if (this.clients.length > 1) await this.compareAndDelete(key, id);
      await sleep(50 + Math.random() * 50);
    }
  }

  async hold(key: string, ttl: number, lost?: () => void): Promise<Release> {
    const id = randomBytes(16).toString('hex');
    if (!(await this.tryToSet(key, id, ttl))) throw new Error(`${key} is held`);
    const extend = async (): Promise<void> => {
      const extended = await this.all((client) => client.evalsha(EXTEND.sha, 1, key, id, ttl));
      if (!extended) lost?.();
    };
    const timer = setInterval(() => void extend(), ttl / 3);
    return () => {
      clearInterval(timer);
      return this.compareAndDelete(key, id);
    };
  }

  close(): Promise<void> {
    for (const client of this.clients) client.disconnect();
    return Promise.resolve();
  }

  private tryToSet(key: string, id: string, ttl: number): Promise<boolean> {
    return this.all(async (client) => (await client.set(key, id, 'PX', ttl, 'NX')) === 'OK');
  }

  private compareAndDelete(key: string, id: string): Promise<boolean> {
    return this.all((client) => client.evalsha(DELETE.sha, 1, key, id));
  }

  private all(ask: (client: Redis) => Promise<unknown>): Promise<boolean> {
    const [client] = this.clients;
    return client && this.clients.length === 1 ? ask(client).then(Boolean) : majority(this.clients, ask);
  }
}

function majority(clients: readonly Redis[], ask: (client: Redis) => Promise<unknown>): Promise<boolean> {
  return new Promise((resolve) => {
    const quorum = Math.floor(clients.length / 2) + 1;
    let agreeing = 0;
    let refusing = 0;
    const refuse = (): void => {
      if (++refusing > clients.length - quorum) resolve(false);
    };
    const count = (reply: unknown): void => {
      if (!reply) refuse();
      else if (++agreeing === quorum) resolve(true);
    };
    for (const client of clients) ask(client).then(count, refuse);
  });
}
