import { describe, expect, test } from '@jest/globals';
import { LockHeldError } from '../../lib/core/errors.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import type { AcquireTerms } from '../../lib/redlock/redlock.js';
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
