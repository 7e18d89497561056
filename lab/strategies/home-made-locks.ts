import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import type { DispatchLock } from '../../sample-app/dispatch/dispatch.job.js';
import { type LockStrategy, PERMITS } from './lock-strategy.js';

// Locks as they are found in blog posts and code bases, each a little better than the one before, and each one wrong.
// The comment on each says what is; `npm run lab` makes it happen.

type Task = (lock?: DispatchLock) => Promise<void>;

/** Deletes the key only if it is still ours. */
const DELETE_IF_OURS = `
  if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
  return 0
`;

/** As `SET NX PX`, and counts the holders. @returns the count, or nil when the key is taken */
const SET_AND_COUNT = `
  if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return false end
  return redis.call('INCR', KEYS[2])
`;

/** The Lua of a semaphore: who is in it, by when their time is over. @returns 1, or nil when all permits are taken */
const COUNT_IN = `
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
  if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then return false end
  redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
  return 1
`;

/** KEYS: the writer, the readers. @returns 1, or nil while somebody writes */
const READ = `
  if redis.call('EXISTS', KEYS[1]) == 1 then return false end
  local time = redis.call('TIME')
  redis.call('ZADD', KEYS[2], time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2], ARGV[1])
  return 1
`;

/** KEYS: the writer, the readers. @returns OK, or nil while somebody reads or writes */
const WRITE = `
  local time = redis.call('TIME')
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', time[1] * 1000 + math.floor(time[2] / 1000))
  if redis.call('ZCARD', KEYS[2]) > 0 then return false end
  return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
`;

/** No lock: every instance dispatches whenever its timer fires. */
export class NoLock implements LockStrategy {
  async attempt(task: Task): Promise<boolean> {
    await task();
    return true;
  }
}

/** `SETNX` and `DEL`. A holder that dies never deletes the key, and nothing else does. */
export class Setnx implements LockStrategy {
  constructor(
    private readonly redis: Redis,
    private readonly key: string,
  ) {}

  async attempt(task: Task): Promise<boolean> {
    if ((await this.redis.setnx(this.key, 'locked')) === 0) return false;
    try {
      await task();
    } finally {
      await this.redis.del(this.key);
    }
    return true;
  }
}

/** `SETNX`, then `EXPIRE`. Two commands: a process that dies between them leaves a key without an expiry. */
export class SetnxThenExpire implements LockStrategy {
  constructor(
    private readonly redis: Redis,
    private readonly key: string,
    private readonly ttl: number,
  ) {}

  async attempt(task: Task): Promise<boolean> {
    if ((await this.redis.setnx(this.key, 'locked')) === 0) return false;
    await this.redis.pexpire(this.key, this.ttl);
    try {
      await task();
    } finally {
      await this.redis.del(this.key);
    }
    return true;
  }
}

/** `SET NX PX`, released by `DEL`. A holder that took longer than the ttl deletes the lock of the next one. */
export class PlainDelete implements LockStrategy {
  constructor(
    private readonly redis: Redis,
    private readonly key: string,
    private readonly ttl: number,
  ) {}

  async attempt(task: Task): Promise<boolean> {
    if ((await this.redis.set(this.key, 'locked', 'PX', this.ttl, 'NX')) === null) return false;
    try {
      await task();
    } finally {
      await this.redis.del(this.key);
    }
    return true;
  }
}

/**
 * `SET NX PX` with an id, released only if the key still has it. It deletes nobody else's lock. But a holder that takes
 * longer than the ttl, waits longer than that for the answer, or is paused, works on without a lock and does not know it.
 */
export class OwnerId implements LockStrategy {
  constructor(
    private readonly redis: Redis,
    private readonly key: string,
    private readonly ttl: number,
  ) {}

  async attempt(task: Task): Promise<boolean> {
    const id = randomUUID();
    if ((await this.redis.set(this.key, id, 'PX', this.ttl, 'NX')) === null) return false;
    try {
      await task();
    } finally {
      await this.redis.eval(DELETE_IF_OURS, 1, this.key, id);
    }
    return true;
  }
}

/** The same with a fencing token: the holder still does not know, but the database does, and refuses its write. */
export class OwnerIdWithToken implements LockStrategy {
  constructor(
    private readonly redis: Redis,
    private readonly key: string,
    private readonly ttl: number,
  ) {}

  async attempt(task: Task): Promise<boolean> {
    const id = randomUUID();
    const token = await this.redis.eval(SET_AND_COUNT, 2, this.key, `${this.key}:token`, id, this.ttl);
    if (token === null) return false;
    try {
      await task({ keys: [this.key], fencingToken: Number(token) });
    } finally {
      await this.redis.eval(DELETE_IF_OURS, 1, this.key, id);
    }
    return true;
  }
}

/** Value that a majority of independent nodes agrees on in time; the lock defines the value that a node stores. */
abstract class OfMajority implements LockStrategy {
  constructor(
    private readonly nodes: readonly Redis[],
    protected readonly key: string,
    protected readonly ttl: number,
  ) {}

  /** @returns something true if the node agrees */
  protected abstract take(node: Redis, id: string): Promise<unknown>;

  protected abstract giveBack(node: Redis, id: string): Promise<unknown>;

  async attempt(task: Task): Promise<boolean> {
    const id = randomUUID();
    const start = Date.now();
    const votes = await this.askAll((node) => this.take(node, id));
    const granted = votes.filter(Boolean).length;
    const validity = this.ttl - (Date.now() - start) - this.ttl / 100 - 2;
    try {
      if (granted <= this.nodes.length / 2 || validity <= 0) return false;
      await task();
      return true;
    } finally {
      await this.askAll((node) => this.giveBack(node, id));
    }
  }

  /** Answer of each node; `undefined` for one that failed or took too long. */
  private askAll<T>(question: (node: Redis) => Promise<T>): Promise<(T | undefined)[]> {
    return Promise.all(
      this.nodes.map((node) =>
        Promise.race([
          question(node).catch(() => undefined),
          sleep(this.ttl / 10, undefined, { ref: false }),
        ]),
      ),
    );
  }
}

/**
 * Redlock as it is usually written: a majority of independent nodes, in time. A node that forgets its locks, because
 * it was restarted without its data, votes again at once, and two holders each get a majority.
 */
export class RedlockUnguarded extends OfMajority {
  protected take(node: Redis, id: string): Promise<unknown> {
    return node.set(this.key, id, 'PX', this.ttl, 'NX');
  }

  protected giveBack(node: Redis, id: string): Promise<unknown> {
    return node.eval(DELETE_IF_OURS, 1, this.key, id);
  }
}

/**
 * At most two at a time: each node counts to two, and a majority must agree. Three nodes that count to two have six
 * places, and a holder needs two of them: that is enough for three.
 */
export class CountedPerNode extends OfMajority {
  protected take(node: Redis, id: string): Promise<unknown> {
    return node.eval(COUNT_IN, 1, this.key, id, this.ttl, PERMITS);
  }

  protected giveBack(node: Redis, id: string): Promise<unknown> {
    return node.zrem(this.key, id);
  }
}

/** Readers come in whenever no writer is there, as in most read-write locks on Redis: also when one has waited for long. */
export class ReadersFirst extends OfMajority {
  protected take(node: Redis, id: string): Promise<unknown> {
    return node.eval(READ, 2, `${this.key}:writer`, `${this.key}:readers`, id, this.ttl);
  }

  protected giveBack(node: Redis, id: string): Promise<unknown> {
    return node.zrem(`${this.key}:readers`, id);
  }
}

/** The writer beside {@link ReadersFirst}. It asks again and again, and readers who come later come first. */
export class WriterLast extends OfMajority {
  protected take(node: Redis, id: string): Promise<unknown> {
    return node.eval(WRITE, 2, `${this.key}:writer`, `${this.key}:readers`, id, this.ttl);
  }

  protected giveBack(node: Redis, id: string): Promise<unknown> {
    return node.eval(DELETE_IF_OURS, 1, `${this.key}:writer`, id);
  }
}
