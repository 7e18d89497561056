import { afterEach, describe, expect, jest, test } from '@jest/globals';
import { LockHeldError } from '../../lib/core/errors.js';
import { Lease } from '../../lib/core/lease.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import { Nodes } from '../../lib/redlock/nodes.js';
import type { AcquireTerms } from '../../lib/redlock/redlock.js';
import { UnstoredReleases } from '../../lib/redlock/unstored-releases.js';
import { collectGarbage } from '../support/collect-garbage.js';
import { redlockOver } from '../support/core.js';
import { scriptedNodes } from '../support/scripted-node.js';
import { until } from '../support/until.js';

const LONG = 60_000;
const AWAY = new Error('no answer');
const once: AcquireTerms = { ttl: LONG, retry: NO_RETRY, renew: false, signals: [] };
const ticked: AcquireTerms = { ...once, tick: { schedule: 'daily', at: 1, life: LONG, from: 'release' } };

describe.each([1, 3])('on %d nodes, a release that no quorum has confirmed', (count) => {
  test.each<[string, AcquireTerms, Partial<LockHeldError>]>([
    ['the record of its tick', ticked, { ranTick: 1 }],
    ['the keys for the rest of `minHold`', { ...once, minHold: LONG }, { ranTick: undefined }],
  ])('is repeated at the shutdown until the nodes store %s', async (_what, options, refusal) => {
    const nodes = scriptedNodes(count);
    const redlock = redlockOver(nodes);
    const lock = await redlock.acquire(['k'], { ...options, ttl: 1_000 });
    for (const node of nodes) node.fate.release = AWAY;
    await lock.release();
    const [first] = nodes;
    const before = first!.count('release');
    const stored = redlock.storeReleases(LONG);
    await until(() => first!.count('release') > before + 1);
    for (const node of nodes) node.fate = {};
    await stored;
    // The ttl of the lock itself is short.
    const error = await redlock.acquire(['k'], ticked).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(LockHeldError);
    expect(error).toMatchObject(refusal);
    expect((error as LockHeldError).retryAfter).toBeGreaterThan(LONG / 2);
  });

  test('is repeated no longer than the given time', async () => {
    const nodes = scriptedNodes(count);
    const redlock = redlockOver(nodes);
    const lock = await redlock.acquire(['k'], ticked);
    for (const node of nodes) node.fate.release = AWAY;
    await lock.release();
    await expect(redlock.storeReleases(300)).resolves.toBeUndefined();
    await expect(redlock.storeReleases(-1)).resolves.toBeUndefined();
  });

  test('is not repeated if it leaves no data on the nodes', async () => {
    const nodes = scriptedNodes(count);
    const redlock = redlockOver(nodes);
    const lock = await redlock.acquire(['k'], once);
    for (const node of nodes) node.fate.release = AWAY;
    await lock.release();
    const before = nodes.map((node) => node.count('release'));
    await redlock.storeReleases(LONG);
    expect(nodes.map((node) => node.count('release'))).toEqual(before);
  });
});

describe('releases of ever new keys that no quorum has confirmed', () => {
  afterEach(() => void jest.useRealTimers());

  function unconfirmed() {
    const [node] = scriptedNodes(1);
    const releases = new UnstoredReleases(new Nodes([node!]), undefined);
    let keys = 0;
    const note = (minHold: number): WeakRef<Lease> => {
      const lease = new Lease([`k${++keys}`], 'me', LONG);
      lease.acquired(performance.now(), minHold);
      lease.ended = true;
      releases.note(lease);
      return new WeakRef(lease);
    };
    return { node: node!, releases, note };
  }

  test('are dropped when `minHold` is over, without a shutdown', async () => {
    jest.useFakeTimers({ doNotFake: ['setImmediate'] });
    const { note } = unconfirmed();
    const first = note(1_000);
    for (let count = 0; count < 150; count++) note(1_000);
    jest.advanceTimersByTime(2_000);
    for (let count = 0; count < 150; count++) note(1_000);
    // A WeakRef keeps its object until the present turn of the event loop is over.
    await new Promise(setImmediate);
    collectGarbage();
    expect(first.deref()).toBeUndefined();
  });

  test('are repeated at the shutdown up to about 10,000, the latest first kept', async () => {
    const { node, releases, note } = unconfirmed();
    const first = note(LONG);
    for (let count = 0; count < 12_000; count++) note(LONG);
    const last = note(LONG);
    const released: Lease[] = [];
    jest.spyOn(node, 'release').mockImplementation((requests, tell) => {
      released.push(...requests.map(({ lease }) => lease));
      for (const index of requests.keys()) tell(index, undefined);
    });
    await releases.store(LONG);
    expect(released.length).toBeGreaterThanOrEqual(10_000);
    expect(released.length).toBeLessThanOrEqual(10_100);
    expect(released).not.toContain(first.deref());
    expect(released).toContain(last.deref());
  });

  test('store no tick once it is no longer remembered', async () => {
    jest.useFakeTimers({ doNotFake: ['setImmediate'] });
    const { node, releases } = unconfirmed();
    const lease = new Lease(['k'], 'me', 1_000, { schedule: 's', at: 1, life: 5_000, from: 'release' });
    lease.acquired(performance.now(), 0);
    lease.ended = true;
    releases.note(lease);
    jest.advanceTimersByTime(5_001);
    await releases.store(LONG);
    expect(node.count('release')).toBe(0);
  });
});
