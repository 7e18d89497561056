import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { LockHeldError, LockUnavailableError } from '../../lib/core/errors.js';
import { NODE_ERROR_CHANNEL, type NodeErrorEvent } from '../../lib/core/lock-events.js';
import { HeldLock } from '../../lib/redlock/held-lock.js';
import { tokenAt } from '../../lib/core/fencing-token.js';
import { Lease } from '../../lib/core/lease.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import { quorumOf } from '../../lib/redlock/quorum.js';
import type { AcquireTerms, Redlock } from '../../lib/redlock/redlock.js';
import { acquireOn, releaseOn } from '../support/ask-store.js';
import { redlockOver } from '../support/core.js';
import { type ScriptedNode, scriptedNodes } from '../support/scripted-node.js';

const once: AcquireTerms = { ttl: 1_000, retry: NO_RETRY, renew: false, signals: [] };
const waiting: AcquireTerms = {
  ...once,
  retry: { timeout: 5_000, attempts: Infinity, delay: 200, jitter: 0 },
};

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  jest.restoreAllMocks();
  jest.useRealTimers();
});

function redlockOn(nodes: readonly ScriptedNode[], owner = 'me'): Redlock {
  return redlockOver(nodes, { owner });
}

/** Resolves to the outcome of a promise, and to its time in milliseconds. */
async function outcome<T>(promise: Promise<T>): Promise<{ value: T | Error; after: number }> {
  const start = performance.now();
  const settled: { value: T | Error; after: number }[] = [];
  const settle = (value: T | Error): void => {
    settled.push({ value, after: performance.now() - start });
  };
  promise.then(settle, settle);
  for (;;) {
    const [first] = settled;
    if (first) return first;
    await jest.advanceTimersByTimeAsync(1);
  }
}

/** Another process locks `key` on some of the nodes. */
async function hold(nodes: readonly ScriptedNode[], key = 'k', owner = 'other'): Promise<HeldLock> {
  const lock = await redlockOn(nodes, owner).acquire([key], once);
  for (const node of nodes) node.requests.length = 0;
  return lock;
}

describe('one attempt', () => {
  test('an attempt that asks a node again at the time limit waits for its answer (S20)', async () => {
    const nodes = scriptedNodes(3);
    const [hanging, , last] = nodes as [ScriptedNode, ScriptedNode, ScriptedNode];
    const permits: AcquireTerms = { ...once, kind: { mode: 'permits', permits: 5 } };
    const before = [];
    for (let slot = 0; slot < 4; slot++) before.push(await redlockOn([last]).acquire(['k'], permits));
    hanging.fate = { acquire: 'hang' };
    const told: string[] = [];
    const tell = (event: unknown): void => void told.push((event as NodeErrorEvent).node);
    subscribe(NODE_ERROR_CHANNEL, tell);
    // The attempt prefers slot 1. The last node, where it is taken, grants slot 4.
    jest.spyOn(Math, 'random').mockReturnValue(0.2);
    const acquired = redlockOn(nodes).acquire(['k'], permits);
    await jest.advanceTimersByTimeAsync(10);
    await before[1]!.release();
    await jest.advanceTimersByTimeAsync(200);
    unsubscribe(NODE_ERROR_CHANNEL, tell);
    expect((await acquired).slot).toBe(1);
    expect(told).toEqual(['a']);
  });

  test('an attempt that a listener to node errors aborts at the time limit is released once', async () => {
    const [node] = scriptedNodes(1) as [ScriptedNode];
    const caller = new AbortController();
    const abort = (): void => caller.abort(new Error('enough'));
    subscribe(NODE_ERROR_CHANNEL, abort);
    node.fate = { acquire: 'hang' };
    const acquired = redlockOn([node]).acquire(['k'], { ...waiting, signals: [caller.signal] });
    const { value } = await outcome(acquired);
    unsubscribe(NODE_ERROR_CHANNEL, abort);
    expect(value).toEqual(new Error('enough'));
    expect([node.count('acquire'), node.count('release')]).toEqual([1, 1]);
  });

  test('an attempt acquires the lock when a majority of nodes grants it', async () => {
    const nodes = scriptedNodes(3);
    nodes[2]!.fate = { acquire: new Error('down') };
    const { value } = await outcome(redlockOn(nodes).acquire(['k'], once));
    expect(value).toBeInstanceOf(HeldLock);
  });

  test('an attempt does not wait for the slowest node', async () => {
    const nodes = scriptedNodes(3);
    nodes[2]!.fate = { acquire: 40 };
    const { value, after } = await outcome(redlockOn(nodes).acquire(['k'], once));
    expect(value).toBeInstanceOf(HeldLock);
    expect(after).toBeLessThan(5);
  });

  test.each([
    ['first', 2],
    ['second', 2],
    ['first', 4],
    ['second', 4],
  ])(
    'an attempt rejects with LockHeldError when another holder has the %s half of %d nodes (S1)',
    async (which, count) => {
      const nodes = scriptedNodes(count);
      await hold(which === 'first' ? nodes.slice(0, count / 2) : nodes.slice(count / 2));
      const { value, after } = await outcome(redlockOn(nodes).acquire(['k'], once));
      expect(value).toBeInstanceOf(LockHeldError);
      // A caller to which the first node granted the lock asks the other nodes again, after pauses of 15 ms in all.
      expect(after).toBeLessThan(which === 'first' ? 5 : 20);
    },
  );

  test.each([2, 4])(
    'when two callers each win half of %d nodes, only the caller that the first node refused is rejected (S1)',
    async (count) => {
      const nodes = scriptedNodes(count);
      for (const [index, { memory }] of nodes.entries()) {
        const { acquire } = memory;
        const late = index < count / 2 ? 'bob' : 'alice';
        memory.acquire = (requests, ordered, tell) => {
          const ask = (): void => acquire.call(memory, requests, ordered, tell);
          if (requests[0]?.lease.owner === late) setTimeout(ask, 2);
          else ask();
        };
      }
      const callers = ['alice', 'bob'].map((owner) => outcome(redlockOn(nodes, owner).acquire(['k'], once)));
      const [alice, bob] = await Promise.all(callers);
      expect(alice?.value).toBeInstanceOf(HeldLock);
      expect(bob?.value).toMatchObject({ code: 'LOCK_HELD', owner: 'alice' });
      // Bob's request arrived first at the second half of the nodes, and Alice asked these nodes again.
      for (const node of nodes.slice(count / 2)) expect(node.count('acquire')).toBeGreaterThan(2);
    },
  );

  test.each([
    ['2 of 4 nodes are', 4, 2],
    ['1 of 2 nodes is', 2, 1],
    ['3 of 5 nodes are', 5, 3],
    ['3 of 3 nodes are', 3, 3],
  ])('an attempt rejects with LockUnavailableError when %s down', async (_case, count, down) => {
    const nodes = scriptedNodes(count);
    for (const node of nodes.slice(0, down)) node.fate = { acquire: new Error('ECONNREFUSED') };
    const { value } = await outcome(redlockOn(nodes).acquire(['k'], once));
    expect(value).toBeInstanceOf(LockUnavailableError);
    const { votes } = value as LockUnavailableError;
    expect(votes).toHaveLength(count);
    // Missing answers after the decision are not errors.
    const errors = votes.filter(({ vote }) => vote === 'error').length;
    expect(errors).toBeLessThanOrEqual(down);
    expect(errors).toBeGreaterThan(count - quorumOf(count));
    expect((value as Error).message).toContain('a: ECONNREFUSED');
  });

  test('an attempt rejects with LockHeldError when two of three nodes have another holder and the third is down', async () => {
    const nodes = scriptedNodes(3);
    await hold(nodes.slice(0, 2));
    nodes[2]!.fate = { acquire: new Error('down') };
    const { value } = await outcome(redlockOn(nodes).acquire(['k'], once));
    expect(value).toMatchObject({ code: 'LOCK_HELD', owner: 'other', keys: ['k'] });
  });

  test('an attempt rejects with LockUnavailableError when one of three nodes has another holder and two are down (S1)', async () => {
    const nodes = scriptedNodes(3);
    await hold(nodes.slice(0, 1));
    for (const node of nodes.slice(1)) node.fate = { acquire: new Error('down') };
    const { value } = await outcome(redlockOn(nodes).acquire(['k'], once));
    expect(value).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    expect((value as LockUnavailableError).votes.map(({ vote }) => vote)).toEqual(['held', 'error', 'error']);
  });

  test('an attempt settles at the time limit of a node when a majority of nodes hangs (S3)', async () => {
    const nodes = scriptedNodes(3);
    for (const node of nodes.slice(1)) node.fate = { acquire: 'hang' };
    const { value, after } = await outcome(redlockOn(nodes).acquire(['k'], once));
    expect(value).toBeInstanceOf(LockUnavailableError);
    expect(after).toBeCloseTo(50, -1);
  });

  test('an attempt gives a node that has answered no time for a new connection when it asks again (S3)', async () => {
    const nodes = scriptedNodes(3);
    const [, refusing, failing] = nodes as [ScriptedNode, ScriptedNode, ScriptedNode];
    await hold([refusing]);
    Object.assign(refusing, { idle: true });
    failing.fate = { acquire: new Error('down') };
    const acquire = refusing.acquire.bind(refusing);
    refusing.acquire = (...args) => {
      refusing.fate = refusing.count('acquire') > 0 ? { acquire: 'hang' } : {};
      acquire(...args);
    };
    const { value, after } = await outcome(redlockOn(nodes).acquire(['k'], { ...once, ttl: 10_000 }));
    expect(value).toBeInstanceOf(LockUnavailableError);
    expect(refusing.count('acquire')).toBe(2);
    // 5 % of the ttl. An idle node has a second for its first answer.
    expect(after).toBeCloseTo(500, -1);
  });

  test('an attempt that is slower than its ttl rejects, and releases the lock (S4, S6)', async () => {
    const nodes = scriptedNodes(1);
    const [node] = nodes as [ScriptedNode];
    // The thread is blocked, so the reply is read late. The timer of the limit has not fired, but the clock shows the delay.
    const acquire = node.acquire.bind(node);
    node.acquire = (requests, ordered, tell) =>
      acquire(requests, ordered, (index, reply) => {
        jest.setSystemTime(Date.now() + 990);
        tell(index, reply);
      });
    const { value } = await outcome(redlockOn(nodes).acquire(['k'], once));
    expect(value).toBeInstanceOf(LockUnavailableError);
    expect((value as Error).message).toContain('took 990 ms to answer, which uses up the ttl of 1000 ms');
    expect(node.count('release')).toBe(1);
  });

  test('a refused attempt reports the time until a quorum can be free', async () => {
    const nodes = scriptedNodes(3);
    await redlockOn(nodes.slice(0, 1), 'x').acquire(['k'], { ...once, ttl: 600 });
    await redlockOn(nodes.slice(1, 2), 'y').acquire(['k'], { ...once, ttl: 300 });
    await redlockOn(nodes.slice(2), 'z').acquire(['k'], { ...once, ttl: 900 });
    const { value } = await outcome(redlockOn(nodes).acquire(['k'], once));
    expect((value as LockHeldError).retryAfter).toBeCloseTo(600, -1);
  });
});

describe('the fencing token', () => {
  /** Sets the last token of `k` on each node. All are larger than the token that an attempt proposes. */
  async function unevenTokens(nodes: readonly ScriptedNode[], steps: readonly number[]): Promise<void> {
    const ahead = tokenAt(Date.now() + 1_000);
    for (const [index, step] of steps.entries()) {
      const { memory } = nodes[index]!;
      const lease = new Lease(['k'], 'before', 1_000);
      await acquireOn(memory, lease);
      await memory.raise(lease, ahead + step);
      await releaseOn(memory, lease);
    }
  }

  test('an acquisition takes one round trip when a quorum agrees on the fencing token', async () => {
    const nodes = scriptedNodes(3);
    await unevenTokens(nodes, [1, 1, 1]);
    const { value } = await outcome(redlockOn(nodes).acquire(['k'], once));
    expect(value).toBeInstanceOf(HeldLock);
    expect(nodes.map((node) => node.requests)).toEqual([['acquire'], ['acquire'], ['acquire']]);
  });

  test('the fencing token is raised on the other nodes to the largest token when no quorum agrees on a token', async () => {
    const nodes = scriptedNodes(3);
    await unevenTokens(nodes, [1, 3, 5]);
    const lock = await redlockOn(nodes.slice(2)).acquire(['other'], once);
    await lock.release();
    for (const node of nodes) node.requests.length = 0;
    const { value } = await outcome(redlockOn(nodes).acquire(['k'], once));
    expect(nodes.map((node) => node.count('raise'))).toEqual([1, 1, 0]);
    const next = await outcome(
      (value as HeldLock).release().then(() => redlockOn(nodes).acquire(['k'], once)),
    );
    expect((next.value as HeldLock).fencingToken).toBeGreaterThan((value as HeldLock).fencingToken);
  });

  test('a fencing token that cannot be raised on a quorum makes the attempt fail and release its votes (S6)', async () => {
    const nodes = scriptedNodes(3);
    await unevenTokens(nodes, [1, 3, 5]);
    for (const node of nodes) node.fate = { raise: new Error('cut') };
    const { value } = await outcome(redlockOn(nodes).acquire(['k'], once));
    expect(value).toBeInstanceOf(LockUnavailableError);
    expect((value as Error).message).toContain('did not agree on a fencing token');
    for (const node of nodes) expect(node.count('release')).toBe(1);
  });

  test('a hanging request to raise the fencing token does not delay an acquisition beyond its timeout (S3, S8)', async () => {
    const nodes = scriptedNodes(3);
    await unevenTokens(nodes, [1, 3, 5]);
    for (const node of nodes) node.fate = { acquire: 15, raise: 'hang' };
    const { value, after } = await outcome(
      redlockOn(nodes).acquire(['k'], { ...once, retry: { ...waiting.retry, timeout: 40 } }),
    );
    expect(value).toBeInstanceOf(LockUnavailableError);
    expect(after).toBeLessThanOrEqual(41);
  });

  test('a fencing token is not returned when raising it used up the ttl (S4)', async () => {
    const nodes = scriptedNodes(3);
    await unevenTokens(nodes, [1, 3, 5]);
    for (const node of nodes) {
      const raise = node.raise.bind(node);
      node.raise = async (...args) => {
        const reply = await raise(...args);
        jest.setSystemTime(Date.now() + 990);
        return reply;
      };
    }
    const { value } = await outcome(redlockOn(nodes).acquire(['k'], once));
    expect(value).toBeInstanceOf(LockUnavailableError);
    expect((value as Error).message).toContain('uses up the ttl');
  });

  test('an acquisition takes one round trip when there is only one node', async () => {
    const nodes = scriptedNodes(1);
    await unevenTokens(nodes, [7]);
    await outcome(redlockOn(nodes).acquire(['k'], once));
    expect(nodes[0]!.requests).toEqual(['acquire']);
  });
});

describe('a tick of a schedule that has run', () => {
  const tick = { schedule: 's', at: 1_000, life: 60_000, from: 'release' } as const;

  test('a tick that has run is not run again when only one node remembers it, though a quorum would grant the lock', async () => {
    const nodes = scriptedNodes(3);
    const lock = (await outcome(redlockOn(nodes).acquire(['k'], { ...once, tick }))).value as HeldLock;
    for (const node of nodes.slice(1)) node.fate = { release: new Error('cut') };
    await lock.release();
    await Promise.all(nodes.slice(1).map((node) => node.memory.close()));
    for (const node of nodes) node.requests.length = 0;
    const { value } = await outcome(redlockOn(nodes).acquire(['k'], { ...once, tick }));
    expect(value).toMatchObject({
      ranTick: 1_000,
      message: '"k" is not locked: me has already run the tick of 1970-01-01T00:00:01.000Z',
    });
    // The other two nodes granted the lock, so it is released there.
    expect(nodes.map((node) => node.count('release'))).toEqual([0, 1, 1]);
    expect(nodes.map((node) => node.memory.size)).toEqual([0, 0, 0]);
  });

  test('a tick that has run is known to every quorum after a confirmed release', async () => {
    const nodes = scriptedNodes(3);
    nodes[0]!.fate = { acquire: new Error('down'), release: new Error('down') };
    const lock = (await outcome(redlockOn(nodes).acquire(['k'], { ...once, tick }))).value as HeldLock;
    await lock.release();
    nodes[0]!.fate = {};
    nodes[1]!.fate = { acquire: new Error('down') };
    const { value } = await outcome(redlockOn(nodes).acquire(['k'], { ...once, tick }));
    expect(value).toMatchObject({ ranTick: 1_000 });
  });
});

describe('a failed attempt (S6)', () => {
  test('a failed attempt records no tick on the nodes that granted the lock', async () => {
    const nodes = scriptedNodes(3);
    const tick = { schedule: 's', at: 1, life: 60_000, from: 'release' } as const;
    const other = await hold(nodes.slice(0, 2));
    await outcome(redlockOn(nodes).acquire(['k'], { ...once, tick }));
    await other.release();
    expect((await outcome(redlockOn(nodes).acquire(['k'], { ...once, tick }))).value).toBeInstanceOf(
      HeldLock,
    );
  });

  test('waiters that give up at the same time leave the queue of the node with one request', async () => {
    const nodes = scriptedNodes(1);
    const lock = await hold(nodes);
    const redlock = redlockOn(nodes);
    const giveUp = new AbortController();
    const outcomes = Array.from({ length: 50 }, () =>
      outcome(redlock.acquire(['k'], { ...waiting, signals: [giveUp.signal] })),
    );
    await jest.advanceTimersByTimeAsync(100);
    giveUp.abort(new Error('given up'));
    for (const { value } of await Promise.all(outcomes)) expect(value).toEqual(new Error('given up'));
    expect(nodes[0]!.count('leave')).toBe(1);
    await lock.release();
  });

  test('a waiter whose store returns no Promise when it leaves the queue is still told of its limit', async () => {
    const nodes = scriptedNodes(1);
    const lock = await hold(nodes);
    nodes[0]!.leave = (() => true) as unknown as ScriptedNode['leave'];
    const retry = { ...waiting.retry, timeout: 300 };
    const { value, after } = await outcome(redlockOn(nodes).acquire(['k'], { ...waiting, retry }));
    expect(value).toBeInstanceOf(LockHeldError);
    expect(after).toBeLessThan(400);
    await lock.release();
  });

  test('a failed attempt leaves no key on the nodes that granted the lock, even with a minHold', async () => {
    const nodes = scriptedNodes(3);
    await hold(nodes.slice(0, 2));
    await outcome(redlockOn(nodes).acquire(['k'], { ...once, minHold: 60_000 }));
    expect(nodes.map((node) => node.memory.size)).toEqual([1, 1, 0]);
  });

  test('a failed attempt releases the lock on the nodes that granted it', async () => {
    const nodes = scriptedNodes(3);
    const other = await hold(nodes.slice(0, 2));
    await outcome(redlockOn(nodes).acquire(['k'], once));
    expect(nodes.map((node) => node.count('release'))).toEqual([0, 0, 1]);
    await other.release();
    expect((await outcome(redlockOn(nodes.slice(2)).acquire(['k'], once))).value).toBeInstanceOf(HeldLock);
  });

  test('a failed attempt releases the lock also on nodes that timed out or answered with an error', async () => {
    const nodes = scriptedNodes(3);
    nodes[0]!.fate = { acquire: 'hang' };
    nodes[1]!.fate = { acquire: new Error('reply lost') };
    await outcome(redlockOn(nodes).acquire(['k'], once));
    expect(nodes.map((node) => node.count('release'))).toEqual([1, 1, 1]);
  });

  test('a failed attempt ends its lease, so that no node starts a request for the lease (S15)', async () => {
    const nodes = scriptedNodes(3);
    for (const node of nodes) node.fate = { acquire: 'hang' };
    await outcome(redlockOn(nodes).acquire(['k'], once));
    expect(nodes[0]!.leases[0]!.ended).toBe(true);
  });
});

describe('retries', () => {
  test('`acquire` with retries makes a lease with a fresh id of 128 bits for every attempt (S5)', async () => {
    const nodes = scriptedNodes(1);
    await hold(nodes);
    await outcome(redlockOn(nodes).acquire(['k'], { ...once, retry: { ...waiting.retry, attempts: 4 } }));
    const ids = nodes[0]!.leases.slice(1).map(({ id }) => id);
    expect(ids).toHaveLength(4);
    expect(new Set(ids).size).toBe(4);
    for (const id of ids) expect(id).toMatch(/^[0-9a-f]{32}$/);
  });

  test('`acquire` with retries gets the lock when its holder releases it', async () => {
    const nodes = scriptedNodes(3);
    const other = await hold(nodes);
    const acquiring = outcome(redlockOn(nodes).acquire(['k'], waiting));
    await jest.advanceTimersByTimeAsync(300);
    await other.release();
    const { value, after } = await acquiring;
    expect(value).toBeInstanceOf(HeldLock);
    expect(after).toBeLessThan(520);
  });

  test('`acquire` with retries gets the lock when the ttl of the holder ends, before the next delay has passed', async () => {
    const nodes = scriptedNodes(1);
    await hold(nodes);
    const { value, after } = await outcome(
      redlockOn(nodes).acquire(['k'], { ...once, retry: { ...waiting.retry, delay: 900 } }),
    );
    expect(value).toBeInstanceOf(HeldLock);
    expect(after).toBeLessThan(1_010);
  });

  test('`acquire` with retries stops after the given number of attempts', async () => {
    const nodes = scriptedNodes(1);
    await hold(nodes);
    const { value, after } = await outcome(
      redlockOn(nodes).acquire(['k'], { ...once, retry: { ...waiting.retry, attempts: 3 } }),
    );
    expect(value).toBeInstanceOf(LockHeldError);
    expect(nodes[0]!.count('acquire')).toBe(3);
    expect(after).toBeLessThan(410);
  });

  test.each([30, 100, 900])(
    '`acquire` with retries settles within a timeout of %d ms when the lock stays held (S8)',
    async (timeout) => {
      const nodes = scriptedNodes(3);
      await hold(nodes, 'k');
      const { value, after } = await outcome(
        redlockOn(nodes).acquire(['k'], { ...once, retry: { ...waiting.retry, timeout } }),
      );
      expect(after).toBeGreaterThanOrEqual(timeout * 0.85);
      expect(after).toBeLessThanOrEqual(timeout + 1);
      expect(value).toBeInstanceOf(LockHeldError);
    },
  );

  test.each([30, 100, 1_000])(
    '`acquire` with retries settles within a timeout of %d ms when all nodes hang (S1)',
    async (timeout) => {
      const nodes = scriptedNodes(3);
      for (const node of nodes) node.fate = { acquire: 'hang', release: 'hang' };
      const { value, after } = await outcome(
        redlockOn(nodes).acquire(['k'], { ...once, retry: { ...waiting.retry, timeout } }),
      );
      expect(value).toBeInstanceOf(LockUnavailableError);
      expect(after).toBeLessThanOrEqual(timeout + 1);
    },
  );

  /** The nodes report recent waiters, so an attempt first asks only the node that keeps the queue (the queue node). */
  function contendedNodes(): ScriptedNode[] {
    const nodes = scriptedNodes(3);
    for (const node of nodes) node.contended = () => true;
    return nodes;
  }

  test('`acquire` with retries settles within its timeout when the queue node is slow and the other nodes hang (S8)', async () => {
    const nodes = contendedNodes();
    nodes[0]!.fate = { acquire: 2_500 };
    for (const node of nodes.slice(1)) node.fate = { acquire: 'hang' };
    const { value, after } = await outcome(
      redlockOn(nodes).acquire(['k'], {
        ...waiting,
        ttl: 60_000,
        retry: { ...waiting.retry, timeout: 4_000 },
      }),
    );
    expect(value).toMatchObject({ code: 'LOCK_UNAVAILABLE', limit: { timeout: 4_000 } });
    expect(after).toBeLessThanOrEqual(4_001);
  });

  test('`acquire` with retries settles within its timeout when a node does not answer the second request (S8)', async () => {
    const nodes = scriptedNodes(3);
    await hold(nodes.slice(1, 2));
    nodes[0]!.fate = { acquire: 1_500 };
    nodes[2]!.fate = { acquire: new Error('down') };
    const [, refusing] = nodes as [ScriptedNode, ScriptedNode];
    const acquire = refusing.acquire.bind(refusing);
    refusing.acquire = (...args) => {
      refusing.fate = refusing.count('acquire') > 0 ? { acquire: 'hang' } : {};
      acquire(...args);
    };
    const { value, after } = await outcome(
      redlockOn(nodes).acquire(['k'], {
        ...waiting,
        ttl: 60_000,
        retry: { ...waiting.retry, timeout: 2_000 },
      }),
    );
    expect(value).toBeInstanceOf(LockUnavailableError);
    expect(refusing.count('acquire')).toBe(2);
    expect(after).toBeLessThanOrEqual(2_001);
  });

  test("`acquire` with retries gives the other nodes only the time that is left after the queue node's answer (S16)", async () => {
    const nodes = contendedNodes();
    nodes[0]!.fate = { acquire: 2_500 };
    const [, asked] = nodes as [ScriptedNode, ScriptedNode];
    const acquire = asked.acquire.bind(asked);
    const limits: number[] = [];
    asked.acquire = (requests, ...rest) => {
      limits.push(...requests.map(({ limit }) => limit));
      acquire(requests, ...rest);
    };
    const { value } = await outcome(
      redlockOn(nodes).acquire(['k'], {
        ...waiting,
        ttl: 60_000,
        retry: { ...waiting.retry, timeout: 4_000 },
      }),
    );
    expect(value).toBeInstanceOf(HeldLock);
    expect(limits[0]).toBeCloseTo(1_500, -1);
  });

  test('`acquire` with retries rejects with LockHeldError when the timeout cuts the last attempt short', async () => {
    const nodes = scriptedNodes(3);
    await hold(nodes);
    for (const node of nodes) node.fate = { acquire: 40 };
    for (const timeout of [45, 60, 75, 90, 105, 120]) {
      const { value, after } = await outcome(
        redlockOn(nodes).acquire(['k'], {
          ...once,
          retry: { timeout, attempts: Infinity, delay: 5, jitter: 0 },
        }),
      );
      expect(value).toBeInstanceOf(LockHeldError);
      expect(after).toBeLessThanOrEqual(timeout + 2);
    }
  });

  test('`acquire` with retries adds a random part to the delay (S8)', async () => {
    const nodes = scriptedNodes(1);
    await hold(nodes);
    jest.spyOn(Math, 'random').mockReturnValue(0.5);
    const { after } = await outcome(
      redlockOn(nodes).acquire(['k'], { ...once, retry: { ...waiting.retry, attempts: 2, jitter: 80 } }),
    );
    jest.restoreAllMocks();
    expect(after).toBeGreaterThanOrEqual(239);
    expect(after).toBeLessThan(245);
  });
});

describe('a signal', () => {
  test('an aborted signal ends the wait for a lock, and the call rejects with the reason of the signal (S8)', async () => {
    const nodes = scriptedNodes(3);
    await hold(nodes);
    const controller = new AbortController();
    const acquiring = outcome(redlockOn(nodes).acquire(['k'], { ...waiting, signals: [controller.signal] }));
    await jest.advanceTimersByTimeAsync(310);
    controller.abort(new Error('not needed any more'));
    const { value, after } = await acquiring;
    expect(value).toEqual(new Error('not needed any more'));
    expect(after).toBeLessThan(315);
  });

  test('an aborted signal ends a running attempt, and the attempt releases the votes that it won (S6)', async () => {
    const nodes = scriptedNodes(3);
    nodes[1]!.fate = { acquire: 'hang' };
    nodes[2]!.fate = { acquire: 'hang' };
    const controller = new AbortController();
    const acquiring = outcome(redlockOn(nodes).acquire(['k'], { ...waiting, signals: [controller.signal] }));
    await jest.advanceTimersByTimeAsync(10);
    controller.abort();
    const { value } = await acquiring;
    expect(value).toMatchObject({ name: 'AbortError' });
    expect(nodes.map((node) => node.count('release'))).toEqual([1, 1, 1]);
  });

  test('a signal that was aborted before the call prevents every request', async () => {
    const nodes = scriptedNodes(1);
    const { value } = await outcome(
      redlockOn(nodes).acquire(['k'], { ...waiting, signals: [AbortSignal.abort()] }),
    );
    expect(value).toMatchObject({ name: 'AbortError' });
    expect(nodes[0]!.requests).toEqual([]);
  });
});
