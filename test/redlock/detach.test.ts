import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { LockLostError, LockUnavailableError, RedlockError } from '../../lib/core/errors.js';
import { Lease } from '../../lib/core/lease.js';
import { EXCLUSIVE, type LockKind, SHARED } from '../../lib/core/lock-mode.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import { isDetachedId, makePass, readPass } from '../../lib/core/pass.js';
import type { ExchangeRequest, HeldKey, KeyHolder, Store } from '../../lib/core/ports.js';
import type { AttachTerms } from '../../lib/redlock/attach.js';
import type { HeldLock } from '../../lib/redlock/held-lock.js';
import type { AcquireTerms } from '../../lib/redlock/redlock.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { redlockOver } from '../support/core.js';
import { ScriptedNode, scriptedNodes } from '../support/scripted-node.js';

// A ttl of 1000 ms has a validity of 988 ms, a renewal every 333 ms, and a time limit of 50 ms for each node.
const TTL = 1_000;
const AWAY = new Error('away');
const RETRY = { timeout: 5_000, attempts: Infinity, delay: 50, jitter: 50 };

let nodes: [ScriptedNode, ScriptedNode, ScriptedNode];

beforeEach(() => {
  jest.useFakeTimers({ doNotFake: ['nextTick', 'setImmediate'] });
  nodes = scriptedNodes(3) as [ScriptedNode, ScriptedNode, ScriptedNode];
});
afterEach(() => {
  jest.useRealTimers();
});

function acquire(options: Partial<AcquireTerms> = {}, stores: readonly Store[] = nodes): Promise<HeldLock> {
  const request = { ttl: TTL, retry: NO_RETRY, renew: true, signals: [], ...options };
  return redlockOver(stores, { owner: 'api' }).acquire(['k'], request);
}

/** Attaches in another process. */
function attach(
  pass: string,
  terms: Partial<AttachTerms> = {},
  stores: readonly Store[] = nodes,
): Promise<HeldLock> {
  const request = { retry: RETRY, renew: true, signals: [], ...terms };
  return redlockOver(stores, { owner: 'worker' }).attach(readPass(pass), request);
}

async function holdersAt(node: { memory: MemoryStore } | MemoryStore): Promise<readonly KeyHolder[]> {
  const memory = node instanceof MemoryStore ? node : node.memory;
  const [state] = (await memory.read(['k'])) as (HeldKey | undefined)[];
  return state?.holders ?? [];
}

/** Runs the clock until the promise has settled. */
async function settled<T>(promise: Promise<T>): Promise<T> {
  const state = { isOver: false };
  const end = (): void => void (state.isOver = true);
  promise.then(end, end);
  while (!state.isOver) await jest.advanceTimersByTimeAsync(5);
  return promise;
}

const KINDS: [string, LockKind][] = [
  ['an exclusive lock', EXCLUSIVE],
  ['a shared lock', SHARED],
  ['a permit', { mode: 'permits', permits: 3 }],
];

describe('detach and attach', () => {
  test.each(KINDS)('%s goes on in another process with its token, slot and ttl', async (_, kind) => {
    const lock = await acquire({ kind });
    await jest.advanceTimersByTimeAsync(300);
    const text = await settled(lock.detach());
    const [waiting] = await holdersAt(nodes[0]);
    expect(waiting).toMatchObject({ owner: 'api (detached)', fencingToken: lock.fencingToken });
    expect(isDetachedId(waiting!.id)).toBe(true);
    expect(waiting!.remaining).toBeGreaterThan(TTL - 50);
    await jest.advanceTimersByTimeAsync(900);
    const attached = await settled(attach(text));
    expect(attached).toMatchObject({ keys: lock.keys, fencingToken: lock.fencingToken, ttl: TTL });
    expect([attached.mode, attached.slots]).toEqual([kind.mode, lock.slots]);
    expect(attached.id).not.toBe(lock.id);
    await jest.advanceTimersByTimeAsync(5 * TTL);
    expect([attached.isHeld(), attached.state]).toEqual([true, 'held']);
    for (const node of nodes)
      expect(await holdersAt(node)).toMatchObject([{ id: attached.id, owner: 'worker' }]);
    await attached.release();
    for (const node of nodes) expect(await holdersAt(node)).toEqual([]);
  });

  test('the detached handle is released without a loss, sends nothing more, and says so', async () => {
    const lock = await acquire();
    const { signal } = lock;
    await settled(lock.detach());
    expect([lock.state, lock.isHeld(), lock.remaining(), lock.loss]).toEqual([
      'released',
      false,
      0,
      undefined,
    ]);
    for (const node of nodes) node.requests.length = 0;
    await lock.release();
    await jest.advanceTimersByTimeAsync(3 * TTL);
    expect(nodes.map(({ requests }) => requests)).toEqual([[], [], []]);
    expect(signal.aborted).toBe(false);
    await expect(lock.extend()).rejects.toThrow('it was detached, so that another process can hold it');
    await expect(lock.detach()).rejects.toThrow(LockLostError);
  });

  test('waits for the renewal under way, and the renewal does not revive the lock of the detached handle (S9)', async () => {
    const lock = await acquire();
    for (const node of nodes) node.fate = { extend: 20 };
    await jest.advanceTimersByTimeAsync(335);
    expect(nodes.map((node) => node.count('extend'))).toEqual([1, 1, 1]);
    const text = lock.detach();
    expect(nodes.map((node) => node.count('exchange'))).toEqual([0, 0, 0]);
    await settled(text);
    await jest.advanceTimersByTimeAsync(TTL);
    await jest.advanceTimersByTimeAsync(TTL);
    for (const node of nodes) expect(await holdersAt(node)).toEqual([]);
  });

  test('a lock that nobody attaches ends with its ttl, and its pass is then too late', async () => {
    const lock = await acquire();
    const text = await settled(lock.detach());
    await jest.advanceTimersByTimeAsync(TTL);
    const next = await acquire();
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    const late = settled(attach(text));
    await expect(late).rejects.toMatchObject({ code: 'LOCK_NOT_ATTACHED' });
    await expect(late).rejects.toThrow(`its ttl of ${TTL} ms has passed since the detachment`);
    await expect(late).rejects.not.toThrow(text.slice(10, 30));
    expect(next.isHeld()).toBe(true);
  });

  test('a pass that was used is refused, also after the lock was released', async () => {
    const lock = await acquire();
    const text = await settled(lock.detach());
    const attached = await settled(attach(text));
    await expect(settled(attach(text))).rejects.toThrow('It was attached already');
    expect(attached.isHeld()).toBe(true);
    await attached.release();
    await expect(settled(attach(text))).rejects.toMatchObject({ code: 'LOCK_NOT_ATTACHED' });
  });

  test('a pass of another prefix or another number of nodes is refused without a request', async () => {
    const text = await settled((await acquire()).detach());
    const other = scriptedNodes(1);
    await expect(attach(text, {}, other)).rejects.toThrow(
      "its pass is from a module with `keyPrefix: ''` and 3 nodes, and this one has `keyPrefix: ''` and 1 nodes",
    );
    expect(other[0]!.requests).toEqual([]);
  });

  test('a store that cannot exchange leases refuses both by its name', async () => {
    const text = await settled((await acquire()).detach());
    const plain = nodes.map((node) => Object.assign(node, { exchange: undefined })) as unknown as Store[];
    const lock = await acquire(
      { kind: SHARED },
      scriptedNodes(1).map((node) => Object.assign(node, { exchange: undefined })) as never,
    );
    await expect(lock.detach()).rejects.toThrow(
      'is not detached: a cannot put one lease in the place of another',
    );
    expect(lock.isHeld()).toBe(true);
    await expect(attach(text, {}, plain)).rejects.toThrow(
      'is not attached: a cannot put one lease in the place',
    );
  });

  test('the rest of minHold and maxHold, and the tick, go with the pass', async () => {
    const tick = { schedule: 'daily', at: 5_000, life: 60_000, from: 'acquisition' } as const;
    const lock = await acquire({ minHold: 4_000, maxHold: 3_000, tick });
    await jest.advanceTimersByTimeAsync(1_000);
    const text = await settled(lock.detach());
    await jest.advanceTimersByTimeAsync(500);
    const attached = await settled(attach(text));
    const { keepFor, mark } = attached.lease;
    expect(keepFor).toBeGreaterThan(2_900);
    expect(keepFor).toBeLessThanOrEqual(3_000);
    expect(mark).toMatchObject({ schedule: 'daily', at: 5_000 });
    expect(mark!.life).toBeLessThanOrEqual(59_000);
    await jest.advanceTimersByTimeAsync(1_000);
    expect(attached.isHeld()).toBe(true);
    await jest.advanceTimersByTimeAsync(1_500);
    expect(attached.loss?.message).toContain('its maxHold of 3000 ms had passed');
    await attached.release();
    await expect(acquire({ tick: { ...tick } })).rejects.toMatchObject({ ranTick: 5_000 });
  });
});

test('a lock whose maxHold has passed is not attached, so it goes past it by one ttl at most', async () => {
  const lock = await acquire({ maxHold: 700 });
  await jest.advanceTimersByTimeAsync(500);
  const text = await settled(lock.detach());
  await jest.advanceTimersByTimeAsync(300);
  for (const node of nodes) node.requests.length = 0;
  const late = attach(text);
  await expect(late).rejects.toMatchObject({ code: 'MAX_HOLD_REACHED' });
  await expect(late).rejects.toThrow('is not attached: its `maxHold` of 700 ms has passed');
  expect(nodes.map(({ requests }) => requests)).toEqual([[], [], []]);
});

test('a lock of more keys than a pass can name stays with its handle', async () => {
  const [store] = scriptedNodes(1);
  const keys = Array.from({ length: 1_600 }, (_, index) => `${index}:${'k'.repeat(1_990)}`);
  const request = { ttl: TTL, retry: NO_RETRY, renew: true, signals: [] };
  const lock = await redlockOver([store!]).acquire(keys, request);
  const refused = lock.detach();
  await expect(refused).rejects.toMatchObject({ code: 'LOCK_NOT_DETACHED' });
  await expect(refused).rejects.toThrow('and 4000000 are the most');
  expect(store!.count('exchange')).toBe(0);
  await jest.advanceTimersByTimeAsync(2 * TTL);
  expect(lock.isHeld()).toBe(true);
  await lock.release();
});

describe('a detachment without a quorum', () => {
  test('is refused, and the lock stays with its handle on every node', async () => {
    const lock = await acquire();
    nodes[1].fate = { exchange: AWAY };
    nodes[2].fate = { exchange: 'hang' };
    await expect(settled(lock.detach())).rejects.toThrow(LockUnavailableError);
    nodes[1].fate = nodes[2].fate = {};
    await jest.advanceTimersByTimeAsync(5 * TTL);
    expect([lock.state, lock.loss]).toEqual(['held', undefined]);
    for (const node of nodes) expect(await holdersAt(node)).toMatchObject([{ id: lock.id }]);
    const attached = await settled(attach(await settled(lock.detach())));
    expect(attached.fencingToken).toBe(lock.fencingToken);
  });

  test('is refused when a nested call joins meanwhile (S18)', async () => {
    const lock = await acquire();
    for (const node of nodes) node.fate = { exchange: 20 };
    const detaching = lock.detach();
    await jest.advanceTimersByTimeAsync(5);
    lock.joined = { isOver: false } as unknown as NonNullable<typeof lock.joined>;
    await expect(settled(detaching)).rejects.toMatchObject({ code: 'LOCK_NOT_DETACHED' });
    lock.joined = undefined;
    await jest.advanceTimersByTimeAsync(100);
    expect(lock.isHeld()).toBe(true);
    for (const node of nodes) expect(await holdersAt(node)).toMatchObject([{ id: lock.id }]);
  });

  test('keeps the rest of minHold on a node that keeps the lease of a failed detachment', async () => {
    const lock = await acquire({ minHold: 700 });
    // The first node takes the lease of the detachment, and does not give it back.
    nodes[1].fate = { exchange: AWAY };
    nodes[2].fate = { exchange: AWAY };
    const { memory } = nodes[0];
    const exchange = memory.exchange.bind(memory);
    memory.exchange = (request) => {
      memory.exchange = () => Promise.reject(AWAY);
      return exchange(request);
    };
    await expect(settled(lock.detach())).rejects.toThrow(LockUnavailableError);
    expect(await holdersAt(nodes[0])).not.toMatchObject([{ id: lock.id }]);
    await lock.release();
    await jest.advanceTimersByTimeAsync(10);
    for (const node of nodes) expect(await holdersAt(node)).toHaveLength(1);
    await jest.advanceTimersByTimeAsync(700);
    for (const node of nodes) expect(await holdersAt(node)).toEqual([]);
  });

  test('leaves nothing behind when the lock is released meanwhile', async () => {
    const lock = await acquire();
    for (const node of nodes) node.fate = { exchange: 'hang' };
    const refused = settled(lock.detach()).catch((error: unknown) => error);
    await lock.release();
    expect(await refused).toBeInstanceOf(LockLostError);
    await jest.advanceTimersByTimeAsync(500);
    for (const node of nodes) expect(await holdersAt(node)).toEqual([]);
  });
});

describe('the end of the nodes waits for', () => {
  /** The owners of the locks on each node when it was closed. */
  let owners: string[][];

  beforeEach(() => {
    owners = [];
    for (const node of nodes)
      node.close = async () => void owners.push((await holdersAt(node)).map(({ owner }) => owner));
  });

  test('a detachment that has failed meanwhile, which leaves no lock behind', async () => {
    const redlock = redlockOver(nodes, { owner: 'api' });
    const lock = await redlock.acquire(['k'], { ttl: TTL, retry: NO_RETRY, renew: true, signals: [] });
    // The exchange is done at once, and its extension is under way when the nodes are closed.
    for (const node of nodes) node.fate = { extend: 20 };
    const refused = settled(lock.detach()).catch((error: unknown) => error);
    await jest.advanceTimersByTimeAsync(5);
    await settled(redlock.close([lock]));
    expect(await refused).toBeInstanceOf(LockLostError);
    expect(owners).toEqual([[], [], []]);
  });

  test('an attachment that a shutdown ends, which gives the lock back', async () => {
    const text = await settled((await acquire()).detach());
    for (const node of nodes) node.fate = { extend: 20 };
    const redlock = redlockOver(nodes, { owner: 'worker' });
    const terms = { retry: RETRY, renew: true, signals: [redlock.closing] };
    const aborted = settled(redlock.attach(readPass(text), terms)).catch((error: unknown) => error);
    await jest.advanceTimersByTimeAsync(5);
    redlock.beginClosing(new Error('the application shuts down'));
    await settled(redlock.close());
    expect(await aborted).toEqual(new Error('the application shuts down'));
    expect(owners).toEqual([['api (detached)'], ['api (detached)'], ['api (detached)']]);
  });
});

test('after the nodes were closed, no lease is given back', async () => {
  const text = await settled((await acquire()).detach());
  const redlock = redlockOver(nodes, { owner: 'worker' });
  for (const node of nodes) node.fate = { exchange: AWAY };
  const attached = redlock.attach(readPass(text), { retry: NO_RETRY, renew: true, signals: [] });
  await expect(settled(attached)).rejects.toThrow(LockUnavailableError);
  await settled(redlock.close());
  for (const node of nodes) node.requests.length = 0;
  await jest.advanceTimersByTimeAsync(2 * TTL);
  expect(nodes.map((node) => node.count('exchange'))).toEqual([0, 0, 0]);
});

test('after the nodes were closed, no lease is released once more', async () => {
  const text = await settled((await acquire()).detach());
  const redlock = redlockOver(nodes, { owner: 'worker' });
  const lock = await settled(redlock.attach(readPass(text), { retry: NO_RETRY, renew: true, signals: [] }));
  await settled(redlock.close([lock]));
  for (const node of nodes) node.requests.length = 0;
  await jest.advanceTimersByTimeAsync(2 * TTL);
  expect(nodes.map(({ requests }) => requests)).toEqual([[], [], []]);
});

describe('an attachment', () => {
  test('is repeated by the same caller when replies are lost', async () => {
    const text = await settled((await acquire()).detach());
    for (const node of nodes) node.fate = { exchange: 'hang' };
    const attached = attach(text);
    await jest.advanceTimersByTimeAsync(60);
    for (const node of nodes) node.fate = {};
    expect((await settled(attached)).isHeld()).toBe(true);
  });

  test('gives the lock back for another caller with the pass when its attempts fail', async () => {
    const text = await settled((await acquire()).detach());
    nodes[0].fate = { exchange: 'hang', extend: 'hang' };
    nodes[1].fate = { extend: 'hang' };
    const failed = settled(attach(text, { retry: { ...RETRY, attempts: 1 } }));
    await expect(failed).rejects.toThrow(LockUnavailableError);
    nodes[0].fate = nodes[1].fate = {};
    const attached = await settled(attach(text));
    expect(attached.isHeld()).toBe(true);
  });

  test('gives the lock back within the time limit of a node, also after an attempt with less time (S16, S27)', async () => {
    const text = await settled((await acquire()).detach());
    const limits: [string, number][] = [];
    for (const node of nodes) {
      node.fate = { exchange: 30 };
      const exchange = node.exchange.bind(node);
      node.exchange = (request) => {
        limits.push([request.lease.owner, request.limit]);
        return exchange(request);
      };
    }
    await expect(settled(attach(text, { retry: { ...RETRY, timeout: 20 } }))).rejects.toThrow(
      LockUnavailableError,
    );
    await jest.advanceTimersByTimeAsync(TTL / 2);
    const [toGive, toTake] = [/detached/, /worker$/].map((name) =>
      limits.filter(([owner]) => name.test(owner)).map(([, limit]) => limit),
    );
    expect([new Set(toGive), new Set(toTake)]).toEqual([new Set([50]), new Set([20])]);
  });

  test('does not count a node that is younger than the guard, and heals it afterwards (S12, S26)', async () => {
    const text = await settled((await acquire()).detach());
    await nodes[0].memory.close();
    const attached = await settled(attach(text));
    await jest.advanceTimersByTimeAsync(2 * TTL);
    expect(await holdersAt(nodes[0])).toMatchObject([{ id: attached.id }]);
  });

  test('also takes the place of the lease that a node kept because it missed the detachment', async () => {
    const lock = await acquire();
    nodes[2].fate = { exchange: AWAY, extend: AWAY };
    const text = await settled(lock.detach());
    expect(await holdersAt(nodes[2])).toMatchObject([{ id: lock.id }]);
    nodes[2].fate = {};
    nodes[0].fate = { exchange: AWAY, extend: AWAY };
    const attached = await settled(attach(text));
    for (const node of nodes.slice(1)) expect(await holdersAt(node)).toMatchObject([{ id: attached.id }]);
    await jest.advanceTimersByTimeAsync(3 * TTL);
    expect(attached.isHeld()).toBe(true);
  });

  test('takes no lock away that a forged text names', async () => {
    const lock = await acquire();
    const {
      text: _,
      id,
      ...facts
    } = readPass(await settled((await acquire({ kind: SHARED }, scriptedNodes(3))).detach()));
    const forged = makePass({ ...facts, kind: EXCLUSIVE, replaced: [lock.id, id] });
    await expect(settled(attach(forged.text))).rejects.toMatchObject({ code: 'LOCK_NOT_ATTACHED' });
    for (const node of nodes) expect(await holdersAt(node)).toMatchObject([{ id: lock.id }]);
    expect(lock.isHeld()).toBe(true);
  });

  test('ends with the reason of a signal, and gives the lock back', async () => {
    const text = await settled((await acquire()).detach());
    for (const node of nodes) node.fate = { exchange: 20 };
    const controller = new AbortController();
    const aborted = settled(attach(text, { signals: [controller.signal] }));
    controller.abort(new Error('no longer needed'));
    await expect(aborted).rejects.toThrow('no longer needed');
    expect((await settled(attach(text))).isHeld()).toBe(true);
  });

  test('counts its validity from the sending of the extension (S4)', async () => {
    const text = await settled((await acquire()).detach());
    const lost = redlockOver(nodes, { nodeTimeout: 5_000 });
    for (const node of nodes) node.fate = { extend: 190 };
    const slow = lost.attach(readPass(text), { retry: RETRY, renew: false, signals: [] });
    const attached = await settled(slow);
    expect(attached.remaining()).toBeLessThanOrEqual(988 - 190);
  });
});

describe('a node that another attacher gives back after the lock was attached without it', () => {
  /** Takes the third node for another attacher; returns the function that gives it back. */
  async function otherTakes(text: string): Promise<() => Promise<void>> {
    const { id } = readPass(text);
    const { memory } = nodes[2];
    const [other, detached] = [
      new Lease(['k'], 'other', TTL),
      new Lease(['k'], 'api (detached)', TTL, undefined, EXCLUSIVE, undefined, id),
    ];
    const terms = { since: Date.now(), limit: 50, guard: 0 };
    expect(await memory.exchange({ ...terms, lease: other, replaces: [id] })).toBe(true);
    return async () => {
      expect(await memory.exchange({ ...terms, lease: detached, replaces: [other.id] })).toBe(true);
      expect(await holdersAt(nodes[2])).toMatchObject([{ id }]);
    };
  }

  test('stores the lock from its next renewal on (S26)', async () => {
    const text = await settled((await acquire()).detach());
    const giveBack = await otherTakes(text);
    const attached = await settled(attach(text));
    await giveBack();
    await jest.advanceTimersByTimeAsync(TTL / 2);
    expect(await holdersAt(nodes[2])).toMatchObject([{ id: attached.id }]);
  });

  test.each(['before', 'after'])(
    'is free soon after the lock was released, if it came %s that',
    async (when) => {
      const text = await settled((await acquire()).detach());
      const giveBack = await otherTakes(text);
      const attached = await settled(attach(text));
      if (when === 'before') await giveBack();
      await attached.release();
      if (when === 'after') await giveBack();
      await jest.advanceTimersByTimeAsync(TTL / 2);
      for (const node of nodes) expect(await holdersAt(node)).toEqual([]);
    },
  );
});

describe('of several attachers', () => {
  /** A node that carries out each exchange after a random time. */
  class UnevenNode extends MemoryStore {
    constructor(readonly isUp: boolean) {
      super();
    }

    override async exchange(request: ExchangeRequest): Promise<boolean> {
      if (!this.isUp) throw AWAY;
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 20));
      return super.exchange(request);
    }
  }

  test.each([
    [3, 3],
    [3, 2],
    [4, 4],
    [4, 3],
    [5, 3],
  ])(
    'one gets the lock, although each may get some of %i nodes first, of which %i answer',
    async (count, up) => {
      for (let turn = 0; turn < 12; turn++) {
        const stores = Array.from({ length: count }, () => new UnevenNode(true));
        const lock = await acquire({ ttl: 10_000 }, stores);
        const text = await settled(lock.detach());
        for (const store of stores.slice(up)) Object.assign(store, { isUp: false });
        const attempts = Array.from({ length: 2 + (turn % 2) }, () => attach(text, { renew: false }, stores));
        const results = await settled(Promise.allSettled(attempts));
        const held = results.filter(({ status }) => status === 'fulfilled');
        expect(held).toHaveLength(1);
        const refusals = results.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []));
        expect(refusals.every((reason) => reason instanceof RedlockError)).toBe(true);
      }
    },
  );
});
