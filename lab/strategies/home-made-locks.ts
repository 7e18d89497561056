import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import type { DispatchLock } from '../../sample-app/dispatch/dispatch.job.js';
import { type LockStrategy, PERMITS } from './lock-strategy.js';

// Locks from blog posts and code bases. Each lock is a little better than the previous lock, and each lock is wrong.
// The comment of each lock says why, and `npm run lab` shows the failure.

type Task = (lock?: DispatchLock) => Promise<void>;

/** Deletes the key only if it still has our value. */
const DELETE_IF_OURS = `
  if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
  return 0
`;

/**
 * Does `SET NX PX`, and counts the acquisitions.
 *
 * @returns the count, which is the fencing token, or nil if the key is taken
 */
const SET_AND_COUNT = `
  if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return false end
  return redis.call('INCR', KEYS[2])
`;

/**
 * Takes a permit of a semaphore: a sorted set of holders with the times at which their permits end.
 *
 * @returns 1, or nil if all permits are taken
 */
const COUNT_IN = `
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
  if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3]) then return false end
  redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
  return 1
`;

/**
 * KEYS: the writer, the readers.
 *
 * @returns 1, or nil while there is a writer
 */
const READ = `
  if redis.call('EXISTS', KEYS[1]) == 1 then return false end
  local time = redis.call('TIME')
  redis.call('ZADD', KEYS[2], time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2], ARGV[1])
  return 1
`;

/**
 * KEYS: the writer, the readers.
 *
 * @returns OK, or nil while there is a reader or a writer
 */
const WRITE = `
  local time = redis.call('TIME')
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', time[1] * 1000 + math.floor(time[2] / 1000))
  if redis.call('ZCARD', KEYS[2]) > 0 then return false end
  return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
`;

/** No lock. Each instance dispatches when its timer fires. */
export class NoLock implements LockStrategy {
  async attempt(task: Task): Promise<boolean> {
    await task();
    return true;
  }
}

/** `SETNX` and `DEL`. A holder that dies never deletes the key, so the key stays for ever. */
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

/** `SETNX`, then `EXPIRE`. A process that dies between the two commands leaves a key without an expiry. */
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

/** `SET NX PX`, released by `DEL`. A holder that takes longer than the ttl deletes the lock of the next holder. */
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
 * `SET NX PX` with an id, released only if the key still has that id. So it deletes no lock of another holder. But a
 * holder can lose its lock without noticing: it takes longer than the ttl, waits longer for the reply, or is paused.
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

/**
 * `OwnerId` with a fencing token. The holder does not notice the loss of its lock either, but the database refuses its
 * write.
 */
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

/** A lock with a majority of independent nodes. The subclasses define the value that a node stores. */
abstract class OfMajority implements LockStrategy {
  constructor(
    private readonly nodes: readonly Redis[],
    protected readonly key: string,
    protected readonly ttl: number,
  ) {}

  /**
   * Asks a node for its vote.
   *
   * @returns a true value if the node agrees
   */
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

  /** Returns the answer of each node; `undefined` for a node that failed or took too long. */
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
 * Redlock as most libraries have it: a majority of independent nodes must grant the lock in time. A node that restarts
 * without its data votes again immediately. Then two holders can each have a majority.
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
 * Two permits, counted on each node, and granted by a majority. Three nodes with two permits have six in all. A holder
 * needs two of them, so three holders get a majority.
 */
export class CountedPerNode extends OfMajority {
  protected take(node: Redis, id: string): Promise<unknown> {
    return node.eval(COUNT_IN, 1, this.key, id, this.ttl, PERMITS);
  }

  protected giveBack(node: Redis, id: string): Promise<unknown> {
    return node.zrem(this.key, id);
  }
}

/**
 * Readers get the lock while there is no writer, even if a writer has waited for long. Most read-write locks on Redis
 * work in this way.
 */
export class ReadersFirst extends OfMajority {
  protected take(node: Redis, id: string): Promise<unknown> {
    return node.eval(READ, 2, `${this.key}:writer`, `${this.key}:readers`, id, this.ttl);
  }

  protected giveBack(node: Redis, id: string): Promise<unknown> {
    return node.zrem(`${this.key}:readers`, id);
  }
}

/** The writer beside {@link ReadersFirst}. It asks again and again, and readers that come later get the lock first. */
export class WriterLast extends OfMajority {
  protected take(node: Redis, id: string): Promise<unknown> {
    return node.eval(WRITE, 2, `${this.key}:writer`, `${this.key}:readers`, id, this.ttl);
  }

  protected giveBack(node: Redis, id: string): Promise<unknown> {
    return node.eval(DELETE_IF_OURS, 1, `${this.key}:writer`, id);
  }
}
