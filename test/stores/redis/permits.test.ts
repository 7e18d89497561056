import { describe, expect, test } from '@jest/globals';
import assert from 'node:assert/strict';
import { NoTimeError } from '../../../lib/core/errors.js';
import { tokenAt } from '../../../lib/core/fencing-token.js';
import { Lease } from '../../../lib/core/lease.js';
import type { AcquireReply, AcquireRequest, SlotWish } from '../../../lib/core/ports.js';
import { LINGER_MS } from '../../../lib/core/store-times.js';
import type { WaiterId } from '../../../lib/core/waiter-id.js';
import { detailsKey, holdersKey, markKey, queueKey, recordKey } from '../../../lib/stores/redis/lock-key.js';
import { waiterName } from '../../../lib/stores/redis/record.js';
import { ACQUIRE_PERMITS, packAcquirePermits } from '../../../lib/stores/redis/scripts/acquire-permits.js';
import { readAcquirePermitsReply } from '../../../lib/stores/redis/scripts/permit-answer.js';
import { ACQUIRE, packAcquire } from '../../../lib/stores/redis/scripts/acquire.js';
import {
  acquireAnswers,
  readAcquireReply,
  showsWaiters,
  tooYoungFor,
} from '../../../lib/stores/redis/scripts/acquire-answer.js';
import { EXTEND_PERMITS, packExtendPermits } from '../../../lib/stores/redis/scripts/extend-permits.js';
import { packRaisePermits, RAISE_PERMITS } from '../../../lib/stores/redis/scripts/raise-permits.js';
import { packReleasePermits, RELEASE_PERMITS } from '../../../lib/stores/redis/scripts/release-permits.js';
import { packRelease, RELEASE } from '../../../lib/stores/redis/scripts/release.js';
import { releaseAnswer } from '../../../lib/stores/redis/scripts/release-command.js';
import {
  type Answer,
  answersTo,
  BASE,
  commandFor,
  ENDED,
  expectAbout,
  FOREIGN,
  listen,
  MARKER,
  PATIENCE,
  PREFIX,
  queue,
  recordOf,
  redis,
  requestFor,
  run,
  server,
  stateOf,
  type Terms,
  together,
  tokenAhead,
  tokenOf,
  toldTo,
  TTL,
  waiterIn,
  withoutMemory,
} from './script-bench.js';
import { until } from '../../support/until.js';

interface LeaseTerms {
  readonly owner?: string;
  readonly ttl?: number;
  readonly permits?: number;
}

function leaseFor(
  keys: string | readonly string[] = 'k',
  { owner = 'me', ttl = TTL, permits = 3 }: LeaseTerms = {},
): Lease {
  const kind = { mode: 'permits', permits } as const;
  return new Lease(typeof keys === 'string' ? [keys] : keys, owner, ttl, undefined, kind);
}

/** Runs ACQUIRE_PERMITS once for these requests. */
function askAll(requests: readonly AcquireRequest[], terms: Terms = {}): Promise<Answer[]> {
  return answersTo(requests, ACQUIRE_PERMITS, packAcquirePermits(requests, commandFor(requests, terms)));
}

/** The answer of ACQUIRE_PERMITS for this lease alone, as the script gives it. */
async function ask(lease: Lease, terms?: Terms): Promise<Answer> {
  const [answer] = await askAll([requestFor(lease, terms)], terms);
  if (answer instanceof Error) throw answer;
  return answer!;
}

async function acquire(lease: Lease, terms?: Terms): Promise<AcquireReply | Error> {
  return readAcquirePermitsReply(await ask(lease, terms), terms?.wish);
}

interface Granted {
  readonly token: number;
  readonly slot: number;
  readonly slots: readonly number[];
}

/** Acquires a lease that must be granted. */
async function granted(lease: Lease, terms?: Terms): Promise<Granted> {
  const reply = await acquire(lease, terms);
  if (reply instanceof Error || !reply.granted) throw new Error(`refused: ${JSON.stringify(reply)}`);
  expect(reply.slots).toHaveLength(lease.keys.length);
  return { token: reply.token, slots: reply.slots!, slot: reply.slots![0]! };
}

/** Acquires a lease that must be refused; returns the refusal. */
async function refused(lease: Lease, terms?: Terms) {
  const reply = await acquire(lease, terms);
  if (reply instanceof Error || reply.granted) throw new Error(`not refused: ${JSON.stringify(reply)}`);
  return reply;
}

async function hold(key = 'k', terms: LeaseTerms = {}, how?: Terms): Promise<Lease> {
  const lease = leaseFor(key, terms);
  await granted(lease, how);
  return lease;
}

function extend(ttl: number, ...leases: readonly Lease[]): Promise<unknown> {
  return run(EXTEND_PERMITS, packExtendPermits(leases, ttl, PREFIX, BASE));
}

function raise(lease: Lease, token: number, marker?: string): Promise<unknown> {
  return run(RAISE_PERMITS, packRaisePermits(lease, token, PREFIX, marker));
}

async function releaseAll(leases: readonly Lease[], pause = 0): Promise<(number | Error)[]> {
  const requests = leases.map((lease) => ({ lease, pause }));
  const reply = await run(RELEASE_PERMITS, packReleasePermits(requests, PREFIX, BASE));
  return leases.map((_, index) => releaseAnswer(reply, index) as number | Error);
}

/** Releases this lease alone; returns the number of notified waiters. */
async function release(lease: Lease, pause?: number): Promise<unknown> {
  const [answer] = await releaseAll([lease], pause);
  if (answer instanceof Error) throw answer;
  return answer;
}

/** An exclusive lease of these keys. */
function alone(keys: string | readonly string[] = 'k', ttl = TTL): Lease {
  return new Lease(typeof keys === 'string' ? [keys] : keys, 'writer', ttl);
}

async function acquireAlone(lease: Lease, terms: Terms = {}): Promise<AcquireReply | Error> {
  const requests = [requestFor(lease, terms)];
  const reply = await run(ACQUIRE, packAcquire(requests, commandFor(requests, terms)));
  return readAcquireReply(acquireAnswers(reply, requests)[0]);
}

function releaseAlone(lease: Lease): Promise<unknown> {
  return run(RELEASE, packRelease([{ lease, pause: 0 }], PREFIX, BASE));
}

async function tokenAlone(key = 'k'): Promise<number> {
  const lease = alone(key);
  const reply = await acquireAlone(lease);
  await releaseAlone(lease);
  return (reply as { token: number }).token;
}

/** A digit for each slot in a record of permits: 1 if the slot is taken, else 0. */
async function takenOf(key = 'k'): Promise<string> {
  const record = (await recordOf(key))!;
  const count = Number(record.slice(70, 74));
  const own = Number(record.slice(66, 70));
  const isTaken = (slot: number): boolean =>
    record[74] === '+'
      ? Boolean((record.charCodeAt(75 + Math.floor(slot / 6)) - 63) & (1 << (slot % 6)))
      : slot === own;
  return Array.from({ length: count }, (_, slot) => (isTaken(slot) ? '1' : '0')).join('');
}

/** Makes a lease look as if its ttl had passed. The key must have another lease. */
async function lapse(lease: Lease, key = 'k'): Promise<void> {
  await redis.zadd(holdersKey(PREFIX, key), Date.now() - 60_000, lease.id);
}

/** Makes all holders look as if their ttl had passed. */
async function lapseAll(key = 'k'): Promise<void> {
  await expect(redis.pexpire(recordKey(PREFIX, key), LINGER_MS)).resolves.toBe(1);
}

function lifeOf(redisKey: string): Promise<number> {
  return redis.pttl(redisKey);
}

/** Expects a key to expire in `life` milliseconds, or a little sooner. */
async function expectLife(redisKey: string, life: number): Promise<void> {
  expectAbout(await lifeOf(redisKey), life);
}

async function remainingOf(lease: Lease, key = 'k'): Promise<number> {
  return Number(await redis.zscore(holdersKey(PREFIX, key), lease.id)) - Date.now();
}

/** Expects every key in Redis, except the marker, to expire within `LINGER_MS`. */
async function expectNothingAfterLinger(): Promise<void> {
  for (const key of await redis.keys('*')) {
    if (key === MARKER) continue;
    const left = await lifeOf(key);
    expect([key, left]).toEqual([key, expect.any(Number)]);
    expect(left).toBeGreaterThan(0);
    expect(left).toBeLessThanOrEqual(LINGER_MS);
  }
}

function from(...slots: readonly number[]): Terms {
  return { wish: { slots, exactly: false } };
}

function exactly(...slots: readonly number[]): Terms {
  return { wish: { slots, exactly: true } };
}

test.each(Object.entries({ ACQUIRE_PERMITS, RAISE_PERMITS, EXTEND_PERMITS, RELEASE_PERMITS }))(
  'the hash of the script %s equals the hash that Redis computes',
  async (_name, { lua, sha }) => {
    await expect(redis.script('LOAD', lua)).resolves.toBe(sha);
  },
);

describe('the ACQUIRE_PERMITS script', () => {
  test('`ACQUIRE_PERMITS` grants slot 0 if a key has one permit, and stores the holder only in the record', async () => {
    const lease = await hold('k', { permits: 1, owner: 'host:1' });
    const { holder } = await refused(leaseFor('k', { permits: 1 }));
    expect(holder).toMatchObject({ id: lease.id, owner: 'host:1', slot: 0, mode: 'permits' });
    await expect(redis.keys('*')).resolves.toEqual(['lock:{k}']);
  });

  test('`ACQUIRE_PERMITS` stores one holder only in the record, and several holders also in a set and a hash until the last release', async () => {
    const a = await hold();
    await expect(redis.keys('*')).resolves.toEqual(['lock:{k}']);
    await expect(takenOf()).resolves.toBe('100');
    await expect(acquireAlone(alone())).resolves.toMatchObject({ granted: false, holder: { id: a.id } });
    const b = await hold();
    await expect(redis.dbsize()).resolves.toBe(3);
    await expectLife(recordKey(PREFIX, 'k'), TTL + LINGER_MS);
    for (const key of [holdersKey(PREFIX, 'k'), detailsKey(PREFIX, 'k')])
      expect(await lifeOf(key)).toBeGreaterThanOrEqual((await lifeOf(recordKey(PREFIX, 'k'))) - 1);
    await release(a);
    await expect(redis.dbsize()).resolves.toBe(3);
    await release(b);
    await expect(redis.keys('*')).resolves.toEqual(['lock:{k}']);
    await expect(stateOf()).resolves.toBe('F-');
    await expectNothingAfterLinger();
  });

  test('`ACQUIRE_PERMITS` names in a refusal at most ten holders, in the order in which they expire', async () => {
    const leases = [];
    for (let index = 0; index < 12; index++)
      leases.push(await hold('k', { permits: 12, ttl: TTL + (12 - index) * 1_000 }));
    const { holder, others } = await refused(leaseFor('k', { permits: 12 }));
    const ids = [holder, ...others!].map(({ id }) => id);
    expect(ids).toEqual(
      leases
        .reverse()
        .slice(0, 10)
        .map(({ id }) => id),
    );
  });

  test.each([
    ['kept for minHold', 'K'],
    ['held by readers', 'S'],
  ])('`ACQUIRE_PERMITS` refuses a permit while the key is %s', async (_name, state) => {
    const record = `${state}-${'1'.padStart(16, '0')}:${'e'.repeat(32)}:1700000000000:them`;
    await redis.set(recordKey(PREFIX, 'k'), record, 'PX', TTL + LINGER_MS);
    expect((await refused(leaseFor())).holder).toMatchObject({ id: 'e'.repeat(32), owner: 'them' });
    await lapseAll();
    await granted(leaseFor());
  });

  test('`ACQUIRE_PERMITS` grants exactly the required slot, or names the holder of that slot', async () => {
    const [a, b] = [leaseFor('k', { owner: 'a' }), leaseFor('k', { owner: 'b' })];
    expect(await granted(a, exactly(1))).toMatchObject({ slot: 1 });
    // While `a` is the only holder there is no set of holders, so the record names `a`. Later the set names both.
    expect((await refused(b, exactly(1))).holder).toMatchObject({ id: a.id, slot: 1, owner: 'a' });
    expect(await granted(b, exactly(2))).toMatchObject({ slot: 2 });
    expect((await refused(leaseFor(), exactly(1))).holder).toMatchObject({ id: a.id, slot: 1, owner: 'a' });
    expect((await refused(leaseFor(), exactly(2))).holder).toMatchObject({ id: b.id, slot: 2, owner: 'b' });
    await lapse(a);
    expect(await granted(leaseFor(), exactly(1))).toMatchObject({ slot: 1 });
  });

  test('`ACQUIRE_PERMITS` frees the present slot of a lease that requires a different slot, even if that slot is held', async () => {
    const [a, b, c] = [leaseFor(), leaseFor(), leaseFor()];
    await granted(a);
    const first = await granted(a, exactly(2));
    expect(first.slot).toBe(2);
    await expect(takenOf()).resolves.toBe('001');
    // A repeated request changes nothing.
    const record = await recordOf();
    expect(await granted(a, exactly(2))).toEqual(first);
    await expect(recordOf()).resolves.toBe(record);

    expect((await granted(b)).slot).toBe(0);
    expect((await granted(b, exactly(1))).slot).toBe(1);
    await expect(takenOf()).resolves.toBe('011');
    expect((await refused(b, exactly(2))).holder).toMatchObject({ id: a.id });
    await expect(takenOf()).resolves.toBe('001');
    await expect(extend(TTL, b)).resolves.toBe('0');
    expect((await granted(c)).slot).toBe(0);
    // The lease keeps its present slot if the request is too late, or if the restart guard keeps the node from voting.
    expect(await acquire(c, { ...exactly(1), deadline: -500 })).toMatchObject({ granted: true, slots: [0] });
    expect(await acquire(c, { ...exactly(1), guard: TTL })).toMatchObject({ granted: true, slots: [0] });
  });

  test('`ACQUIRE_PERMITS` grants one slot of each of several keys, or no slot at all', async () => {
    const keys = ['a', 'b', 'c'];
    await hold('b');
    expect(await granted(leaseFor(keys))).toMatchObject({ slots: [0, 1, 0] });
    await hold('b');
    const before = await redis.keys('*');
    const bits = await Promise.all(keys.map(takenOf));
    expect(await ask(leaseFor([...keys, 'd']))).toEqual([2, expect.any(Array), 3]);
    await expect(Promise.all(keys.map(takenOf))).resolves.toEqual(bits);
    expect((await redis.keys('*')).sort()).toEqual(before.sort());
    const apart = leaseFor(['a', 'c']);
    expect(await granted(apart, exactly(2, 1))).toMatchObject({ slots: [2, 1] });
    expect(await granted(apart, exactly(1, 1))).toMatchObject({ slots: [1, 1] });
    await expect(takenOf('a')).resolves.toBe('110');
  });

  test('`ACQUIRE_PERMITS` adds slots for a request with a larger number of permits, and grants the preferred slot first', async () => {
    await hold('k', { permits: 1 });
    await refused(leaseFor('k', { permits: 1 }));
    expect(await granted(leaseFor('k', { permits: 4 }), from(2))).toMatchObject({ slot: 2 });
    expect(await granted(leaseFor('k', { permits: 4 }), exactly(3))).toMatchObject({ slot: 3 });
    expect(await granted(leaseFor('k', { permits: 6 }), from(2))).toMatchObject({ slot: 4 });
    expect(await granted(leaseFor('k', { permits: 6 }), from(5))).toMatchObject({ slot: 5 });
    expect(await granted(leaseFor('k', { permits: 6 }), from(5))).toMatchObject({ slot: 1 });
    await expect(takenOf()).resolves.toBe('111111');
  });

  test('`ACQUIRE_PERMITS` grants the same token and slot again when it runs twice for one lease, and changes nothing', async () => {
    const [first, second] = [leaseFor(['a', 'b']), leaseFor(['a', 'b'])];
    for (const lease of [first, second]) {
      const given = await granted(lease);
      const before = await redis.mget('lock:{a}', 'lock:{b}');
      await expect(granted(lease)).resolves.toEqual(given);
      await expect(granted(lease, { deadline: -1_000 })).resolves.toEqual(given);
      await expect(redis.mget('lock:{a}', 'lock:{b}')).resolves.toEqual(before);
    }
    await expect(redis.zcard(holdersKey(PREFIX, 'a'))).resolves.toBe(2);
  });

  test('`ACQUIRE_PERMITS` fails when it runs again for a lease that was released, is kept for minHold or has lapsed', async () => {
    for (const many of [false, true]) {
      await redis.flushall();
      const [released, kept, lapsed] = ['a', 'b', 'c'].map((key) => leaseFor(key)) as [Lease, Lease, Lease];
      if (many) for (const key of 'bc') await hold(key, { ttl: 2 * TTL });
      for (const lease of [released, kept, lapsed]) await granted(lease);
      kept.acquired(performance.now(), TTL);
      await releaseAll([released, kept]);
      if (many) await lapse(lapsed, 'c');
      else await lapseAll('c');
      for (const lease of [released, kept, lapsed]) {
        const record = await recordOf(lease.keys[0]);
        await expect(ask(lease)).rejects.toThrow(ENDED);
        // A request for another slot fails, too.
        await expect(ask(lease, exactly(2))).rejects.toThrow(ENDED);
        await expect(recordOf(lease.keys[0])).resolves.toBe(record);
      }
    }
  });

  test('`ACQUIRE_PERMITS` does not grant a lease again when one of its keys is gone', async () => {
    const lease = leaseFor(['a', 'b']);
    await granted(lease);
    await redis.del('lock:{b}');
    await expect(ask(lease)).rejects.toThrow('some of its keys are gone');
    await expect(recordOf('b')).resolves.toBeNull();
  });

  test('`ACQUIRE_PERMITS` does nothing when it arrives after its deadline on the server clock (S16)', async () => {
    const reply = await acquire(leaseFor(), { deadline: -300 });
    expect(reply).toBeInstanceOf(NoTimeError);
    await expect(redis.dbsize()).resolves.toBe(0);
    await hold();
    const record = await recordOf();
    expect(await acquire(leaseFor(), { deadline: -300 })).toBeInstanceOf(NoTimeError);
    await expect(recordOf()).resolves.toBe(record);
  });

  test('`ACQUIRE_PERMITS` refuses requests while the data is younger than the restart guard, and returns the remaining time (S12)', async () => {
    const wait = tooYoungFor(await ask(leaseFor(), { guard: TTL }))!;
    expect(wait).toBeGreaterThan(TTL - PATIENCE);
    await expect(redis.keys('*')).resolves.toEqual([MARKER]);
  });

  test.each([
    ['short', 'P'],
    ['long', 'P'.repeat(200)],
    [
      'like a record of permits without its slots',
      `P-${'1'.repeat(16)}:${'e'.repeat(32)}:1700000000000:0000`,
    ],
  ])(
    '`ACQUIRE_PERMITS` fails on a value that is not a lock (%s), and overwrites nothing (S19)',
    async (_name, value) => {
      await redis.set('lock:{b}', value, 'PX', LINGER_MS);
      await expect(ask(leaseFor(['a', 'b']))).rejects.toThrow(FOREIGN);
      await expect(redis.keys('*')).resolves.toEqual(['lock:{b}']);
      await expect(redis.get('lock:{b}')).resolves.toBe(value);
    },
  );

  test.each([
    ['the record', recordKey(PREFIX, 'k'), 0],
    ['the mark of a waiter', markKey(PREFIX, 'k'), 0],
    ['the set of holders, for the second holder', holdersKey(PREFIX, 'k'), 1],
    ['the hash of holders, for the second holder', detailsKey(PREFIX, 'k'), 1],
    ['the set of holders, when a third holder asks', holdersKey(PREFIX, 'k'), 2],
    ['the hash of holders, for the third holder', detailsKey(PREFIX, 'k'), 2],
  ])(
    '`ACQUIRE_PERMITS` fails on a key of another type in place of %s, and overwrites nothing (S19)',
    async (_name, key, held) => {
      for (let index = 0; index < held; index++) await hold('k', { permits: 3 });
      await redis.del(key);
      await redis.rpush(key, 'not a lock');
      const record = await redis.dump(recordKey(PREFIX, 'k'));
      const asking =
        held === 2 && key === holdersKey(PREFIX, 'k') ? leaseFor('k', { permits: 2 }) : leaseFor();
      await expect(ask(asking)).rejects.toThrow('WRONGTYPE');
      await expect(redis.lrange(key, 0, -1)).resolves.toEqual(['not a lock']);
      await expect(redis.dump(recordKey(PREFIX, 'k'))).resolves.toBe(record);
    },
  );

  test('`ACQUIRE_PERMITS` fails if the Redis key for the mark of a waiter has a value that is not a mark', async () => {
    await redis.set(markKey(PREFIX, 'k'), 'somebody');
    await expect(ask(leaseFor())).rejects.toThrow(FOREIGN);
  });

  test('`ACQUIRE_PERMITS` stores nothing when Redis is out of memory (S9)', async () => {
    await hold('b');
    await hold('c');
    await hold('c');
    const before = [await recordOf('b'), await recordOf('c')];
    await withoutMemory(async () => {
      for (const keys of ['a', 'b', 'c', ['a', 'b'], ['c', 'a']])
        await expect(ask(leaseFor(keys))).rejects.toThrow('OOM');
      await expect(ask(leaseFor('a'), { marked: true })).rejects.toThrow('OOM');
    });
    expect([await recordOf('b'), await recordOf('c')]).toEqual(before);
    await expect(redis.dbsize()).resolves.toBe(4);
    await expect(redis.zcard(holdersKey(PREFIX, 'c'))).resolves.toBe(2);
  });

  test('`ACQUIRE_PERMITS` grants no slot that the record shows as taken, even if the set and the hash of holders are gone', async () => {
    await Promise.all([hold('k', { permits: 2 }), hold('k', { permits: 2 })]);
    await redis.del(holdersKey(PREFIX, 'k'), detailsKey(PREFIX, 'k'));
    await refused(leaseFor('k', { permits: 2 }));
    expect(await granted(leaseFor('k', { permits: 3 }))).toMatchObject({ slot: 2 });
    for (const key of await redis.keys('*')) expect(await lifeOf(key)).toBeGreaterThan(0);
    await lapseAll();
    expect(await granted(leaseFor('k', { permits: 2 }))).toMatchObject({ slot: 0 });
  });

  test('`ACQUIRE_PERMITS` answers each of several leases separately', async () => {
    const waiter = waiterOf('a', 'p', 'full');
    await hold('full', { permits: 1 });
    await redis.rpush('lock:{list}', 'not a lock');
    const leases = ['a', 'a', 'full', 'list', 'a', 'a'].map((key) => leaseFor(key, { permits: 3 }));
    leases[2] = leaseFor('full', { permits: 1 });
    const several = leaseFor(['b', 'c'], { permits: 3 });
    const packs = [leases[0]!, leases[1]!, several, leases[3]!, leases[4]!, leases[5]!];
    const answers = (await askAll(packs.map((lease) => requestFor(lease)))).map((answer) =>
      readAcquirePermitsReply(answer),
    );
    expect(answers).toEqual([
      expect.objectContaining({ granted: true, slots: [0] }),
      expect.objectContaining({ granted: true, slots: [1] }),
      expect.objectContaining({ granted: true, slots: [0, 0] }),
      expect.objectContaining({ message: expect.stringMatching(/^WRONGTYPE/) as unknown }),
      expect.objectContaining({ granted: true, slots: [2] }),
      expect.objectContaining({ granted: false }),
    ]);
    const [refusal] = await askAll([requestFor(leases[2], { waiter })], { ordered: true });
    expect(showsWaiters(refusal)).toBe(true);
    expect(showsWaiters(await ask(leaseFor('other')))).toBe(false);
    await expect(releaseAll(packs)).resolves.toEqual([0, 0, 0, expect.any(Error), 0, 0]);
    await expect(Promise.all(['a', 'b', 'c'].map(stateOf))).resolves.toEqual(['F-', 'F-', 'F-']);
  });

  test('`ACQUIRE_PERMITS` fails as a whole with READONLY on a replica, so that the client can reconnect', async () => {
    const leases = [leaseFor(), leaseFor()];
    for (const lease of leases) await granted(lease);
    await redis.replicaof('127.0.0.1', 1);
    try {
      await expect(askAll(['a', 'k'].map((key) => requestFor(leaseFor(key))))).rejects.toThrow(/^READONLY/);
      await expect(releaseAll(leases)).rejects.toThrow(/READONLY/);
    } finally {
      await redis.replicaof('NO', 'ONE');
    }
  });
});

describe('the slots of permits', () => {
  const wishes = [2, 0, 1].map((slot): SlotWish => ({ slots: [slot], exactly: false }));

  test('permits need one GET and one SET for each free key, and one EXISTS for the marks of all keys', async () => {
    const keys = ['a', 'b', 'c'];
    for (const key of keys) await release(await hold(key));
    await redis.config('RESETSTAT');
    const leases = keys.map((key) => leaseFor(key));
    const answers = await askAll(leases.map((lease, index) => requestFor(lease, { wish: wishes[index] })));
    expect(answers.map((answer, index) => readAcquirePermitsReply(answer, wishes[index]))).toEqual(
      wishes.map(({ slots }) => ({ granted: true, token: expect.any(Number), slots })),
    );
    const calls = (await redis.info('commandstats')).matchAll(
      /^cmdstat_(time|exists|[a-z]*[gs]et):calls=(\d+)/gm,
    );
    expect(Object.fromEntries([...calls].map(([, name, count]) => [name, Number(count)]))).toEqual({
      time: 1,
      exists: 1,
      get: 3,
      set: 3,
    });
    for (const [index, key] of keys.entries())
      await expect(takenOf(key)).resolves.toBe(['001', '100', '010'][index]);
  });

  test('permits get their preferred slots, or the next free slot of a key that has a holder', async () => {
    await hold('b');
    const leases = ['a', 'b', 'c'].map((key) => leaseFor(key));
    const answers = await askAll(leases.map((lease, index) => requestFor(lease, { wish: wishes[index] })));
    const slots = answers.map((answer, index) => readAcquirePermitsReply(answer, wishes[index]));
    expect(slots).toMatchObject([{ slots: [2] }, { slots: [1] }, { slots: [1] }]);
  });

  test('a permit gets an existing slot when the number of its preferred slot is too large', async () => {
    const wish = { slots: [4], exactly: false };
    expect(await granted(leaseFor(), { wish })).toMatchObject({ slot: 1 });
    await expect(takenOf()).resolves.toBe('010');
  });
});

describe('the fencing tokens of permits', () => {
  test('a token of a permit follows the clock, or equals the proposed token', async () => {
    const before = Date.now();
    const { token } = await granted(leaseFor());
    expect(token).toBeGreaterThanOrEqual(tokenAt(before - 1));
    const soon = tokenAhead(1_500);
    for (const key of ['k', 'other']) {
      const given = await granted(leaseFor(key), { proposal: soon });
      expect(given.token).toBe(soon);
    }
  });

  test('the tokens of each slot increase separately', async () => {
    const [a, b] = [leaseFor(), leaseFor()];
    await granted(a);
    await granted(b);
    const far = tokenAhead();
    await expect(raise(b, far, MARKER)).resolves.toBe(1);
    const { token, slot } = await granted(leaseFor());
    expect(slot).toBe(2);
    expect(token).toBeLessThan(far);
    await release(a);
    const again = await granted(leaseFor());
    expect(again.slot).toBe(0);
    expect(again.token).toBeLessThan(far);
    // The record has the largest token.
    await expect(tokenOf()).resolves.toBe(far);
    await release(b);
    expect(await granted(leaseFor(), exactly(1))).toMatchObject({ slot: 1, token: far + 1 });
    await expect(tokenOf()).resolves.toBe(far + 1);
  });

  test('the tokens of a slot increase with each of many pipelined grants while another slot is held', async () => {
    await hold();
    const leases = Array.from({ length: 100 }, () => leaseFor());
    const answers = await together(() => leases.flatMap((lease) => [ask(lease), release(lease)]));
    const replies = answers.filter((_, index) => index % 2 === 0) as Answer[];
    let last = 0;
    for (const reply of replies) {
      const { token, slots } = readAcquirePermitsReply(reply) as unknown as Granted;
      expect(slots).toEqual([1]);
      expect(token).toBeGreaterThan(last);
      last = token;
    }
  });

  test.each(['H', 'S', 'F', 'K'])(
    'the first token of every slot is larger than the token of an earlier record with the state letter %s',
    async (state) => {
      const far = tokenAhead();
      const record = `${state}-${String(far).padStart(16, '0')}:${'e'.repeat(32)}:1700000000000:them`;
      await redis.set(recordKey(PREFIX, 'k'), record, 'PX', LINGER_MS);
      expect(await granted(leaseFor())).toMatchObject({ token: far + 1 });
      expect(await granted(leaseFor())).toMatchObject({ token: far + 1 });
      expect(await granted(leaseFor(), exactly(2))).toMatchObject({ token: far + 1 });
    },
  );

  test('the tokens of every slot are smaller than the token of the next exclusive lock', async () => {
    const [a, b] = [leaseFor(), leaseFor()];
    await granted(a);
    await granted(b);
    const far = tokenAhead();
    await raise(a, far, MARKER);
    await release(a);
    await release(b);
    expect(await tokenAlone()).toBe(far + 1);
    expect(await granted(leaseFor())).toMatchObject({ token: far + 2 });
    await lapseAll();
    expect(await tokenAlone()).toBe(far + 3);
  });

  test('a permit of several keys has one token, larger than all earlier tokens of its slots', async () => {
    const far = tokenAhead();
    const lease = await hold('b');
    await hold('b');
    await raise(lease, far, MARKER);
    await release(lease);
    const given = await granted(leaseFor(['a', 'b']));
    expect(given).toEqual({ token: far + 1, slot: 0, slots: [0, 0] });
    await expect(tokenOf('a')).resolves.toBe(far + 1);
  });

  test('tokens never exceed Number.MAX_SAFE_INTEGER', async () => {
    const record = `F-${Number.MAX_SAFE_INTEGER}:${'e'.repeat(32)}:1700000000000:them`;
    await redis.set(recordKey(PREFIX, 'k'), record, 'PX', LINGER_MS);
    await expect(ask(leaseFor())).rejects.toThrow('fencing token out of range');
    await expect(recordOf()).resolves.toBe(record);
  });

  test("tokens are larger than the token in the node's marker, and raise the marker if necessary", async () => {
    const high = tokenAhead();
    await redis.set(
      MARKER,
      `${String(Date.now() - TTL).padStart(16, '0')}:${String(high).padStart(16, '0')}`,
    );
    expect(await granted(leaseFor(), { marked: true })).toMatchObject({ token: high + 1 });
    expect(Number((await redis.get(MARKER))!.slice(17))).toBe(high + 1);
    expect(await granted(leaseFor(), { marked: true })).toMatchObject({ token: high + 2 });
  });
});

describe('the RAISE_PERMITS script', () => {
  test.each([false, true])(
    '`RAISE_PERMITS` raises the token of the slot and of the record (several holders: %p)',
    async (many) => {
      const lease = leaseFor(['a', 'b']);
      const { token } = await granted(lease);
      if (many) for (const key of 'ab') await hold(key);
      await expect(raise(lease, token + 500)).resolves.toBe(1);
      await expect(raise(lease, token + 500)).resolves.toBe(1);
      await expect(raise(lease, token + 499)).resolves.toBe(0);
      expect(await granted(lease)).toMatchObject({ token: token + 500 });
      for (const key of 'ab') expect(await tokenOf(key)).toBeGreaterThanOrEqual(token + 500);
    },
  );

  test('`RAISE_PERMITS` raises the token of a slot even if another slot has a larger token, and does not change the larger token', async () => {
    const [a, b] = [await hold(), await hold()];
    const { token } = await granted(a);
    const far = tokenAhead();
    await raise(b, far, MARKER);
    await expect(raise(a, token + 1)).resolves.toBe(1);
    expect(await granted(a)).toMatchObject({ token: token + 1 });
    expect(await granted(b)).toMatchObject({ token: far });
    await expect(tokenOf()).resolves.toBe(far);
  });

  test('`RAISE_PERMITS` changes nothing for a lease that was released, is kept for minHold, has lapsed, expects a slot that it does not hold, or was never granted', async () => {
    for (const many of [false, true]) {
      await redis.flushall();
      if (many) for (const key of 'abcde') await hold(key, { ttl: 2 * TTL });
      const [released, kept, lapsed, apart] = [...'abcd'].map((key) => leaseFor(key)) as [
        Lease,
        Lease,
        Lease,
        Lease,
      ];
      const other = leaseFor(['e', 'a']);
      for (const lease of [released, kept, lapsed, apart]) await granted(lease);
      kept.acquired(performance.now(), TTL);
      await releaseAll([released, kept]);
      if (many) await lapse(lapsed, 'c');
      else await lapseAll('c');
      apart.slots = [2];
      const records = await redis.mget(...[...'abcde'].map((key) => recordKey(PREFIX, key)));
      for (const lease of [released, kept, lapsed, apart, other])
        await expect(raise(lease, tokenAhead(1_000))).resolves.toBe(0);
      await expect(redis.mget(...[...'abcde'].map((key) => recordKey(PREFIX, key)))).resolves.toEqual(
        records,
      );
      apart.slots = [many ? 1 : 0];
      await expect(raise(apart, tokenAhead(1_000))).resolves.toBe(1);
    }
  });

  test("`RAISE_PERMITS` raises a token far beyond the clock only if it also raises the node's marker", async () => {
    const lease = await hold();
    const far = tokenAhead();
    await expect(raise(lease, far)).resolves.toBe(0);
    await expect(raise(lease, far, MARKER)).resolves.toBe(1);
    expect(Number((await redis.get(MARKER))!.slice(17))).toBe(far);
    await withoutMemory(async () => {
      await expect(raise(lease, far + 5, MARKER)).rejects.toThrow('OOM');
    });
    expect(await granted(lease)).toMatchObject({ token: far });
  });
});

describe('the EXTEND_PERMITS script', () => {
  test('`EXTEND_PERMITS` extends only the given lease, whether or not the key has other holders (S23)', async () => {
    const a = await hold();
    await expect(extend(2 * TTL, a)).resolves.toBe('1');
    await expectLife(recordKey(PREFIX, 'k'), 2 * TTL + LINGER_MS);
    const b = await hold();
    await expect(extend(TTL, b)).resolves.toBe('1');
    await expectLife(recordKey(PREFIX, 'k'), 2 * TTL + LINGER_MS);
    await expect(extend(5 * TTL, b)).resolves.toBe('1');
    expect(await remainingOf(a)).toBeLessThanOrEqual(2 * TTL);
    expect(await remainingOf(b)).toBeGreaterThan(5 * TTL - PATIENCE);
    for (const nameOf of [recordKey, holdersKey, detailsKey])
      expect(await lifeOf(nameOf(PREFIX, 'k'))).toBeGreaterThan(5 * TTL);
    await expect(acquireAlone(alone())).resolves.toMatchObject({ holder: { id: b.id } });
    // An extension never shortens a lease.
    await expect(extend(1_000, a, b)).resolves.toBe('11');
    expect(await remainingOf(b)).toBeGreaterThan(4 * TTL);
    expect(await remainingOf(a)).toBeGreaterThan(2 * TTL - PATIENCE);
  });

  test('`EXTEND_PERMITS` revives no lease that was released, is kept for minHold, has lapsed, or expects a slot that it does not hold', async () => {
    for (const many of [false, true]) {
      await redis.flushall();
      if (many) for (const key of 'abcd') await hold(key, { ttl: 2 * TTL });
      const [released, kept, lapsed, apart] = [...'abcd'].map((key) => leaseFor(key)) as [
        Lease,
        Lease,
        Lease,
        Lease,
      ];
      for (const lease of [released, kept, lapsed, apart]) await granted(lease);
      kept.acquired(performance.now(), TTL);
      await releaseAll([released, kept]);
      if (many) await lapse(lapsed, 'c');
      else await lapseAll('c');
      apart.slots = [2];
      await expect(extend(9 * TTL, released, kept, lapsed, apart)).resolves.toBe('0000');
      for (const key of 'abcd') expect(await lifeOf(recordKey(PREFIX, key))).toBeLessThan(3 * TTL);
      // The extension has freed the stored slot, because the lease expects another slot.
      await expect(granted(leaseFor('d'))).resolves.toMatchObject({ slot: many ? 1 : 0 });
    }
  });

  test('`EXTEND_PERMITS` extends a lease that still has its slots, and refuses a lease that was never granted', async () => {
    const lease = leaseFor(['a', 'b']);
    lease.slots = (await granted(lease)).slots;
    await hold('b');
    await expect(extend(2 * TTL, lease, leaseFor('a'), lease)).resolves.toBe('101');
    for (const key of 'ab') await expectLife(recordKey(PREFIX, key), 2 * TTL + LINGER_MS);
  });

  test('`EXTEND_PERMITS` extends nothing when one key of the lease is missing or has another type', async () => {
    const lease = leaseFor(['a', 'b']);
    await granted(lease);
    await redis.del('lock:{b}');
    await expect(extend(9 * TTL, lease)).resolves.toBe('0');
    await redis.rpush('lock:{b}', 'not a lock');
    await expect(extend(9 * TTL, lease)).resolves.toBe('0');
    await expectLife(recordKey(PREFIX, 'a'), TTL + LINGER_MS);
  });

  test('`EXTEND_PERMITS` extends a single holder, or one of several holders, when Redis is out of memory (S9)', async () => {
    const single = await hold('a');
    const [b, c] = [await hold('k', { ttl: 10 * TTL }), await hold()];
    await withoutMemory(async () => {
      await expect(extend(2 * TTL, single, c)).resolves.toBe('11');
      await expectLife(recordKey(PREFIX, 'a'), 2 * TTL + LINGER_MS);
      expect(await remainingOf(c)).toBeGreaterThan(2 * TTL - PATIENCE);
      await expect(extend(20 * TTL, c)).resolves.toBe('1');
      await expectLife(recordKey(PREFIX, 'k'), 20 * TTL + LINGER_MS);
      expect(await lifeOf(holdersKey(PREFIX, 'k'))).toBeGreaterThan(20 * TTL);
      expect(await lifeOf(detailsKey(PREFIX, 'k'))).toBeGreaterThan(20 * TTL);
      await expect(extend(11 * TTL, b)).resolves.toBe('1');
    });
    await expect(acquireAlone(alone())).resolves.toMatchObject({ holder: { id: c.id } });
  });

  test('`EXTEND_PERMITS` gives a record that has lost its expiry a new expiry', async () => {
    const [a, b] = [await hold('a'), await hold('k', { ttl: 5 * TTL })];
    const c = await hold();
    for (const key of ['a', 'k']) await redis.persist(recordKey(PREFIX, key));
    await expect(extend(2 * TTL, a, c)).resolves.toBe('11');
    await expectLife(recordKey(PREFIX, 'a'), 2 * TTL + LINGER_MS);
    await expectLife(recordKey(PREFIX, 'k'), 5 * TTL + LINGER_MS);
    await expect(extend(6 * TTL, b)).resolves.toBe('1');
    await expectLife(recordKey(PREFIX, 'k'), 6 * TTL + LINGER_MS);
  });
});

describe('the RELEASE_PERMITS script', () => {
  test('`RELEASE_PERMITS` frees only the slot of its lease, and has no effect a second time (S7)', async () => {
    const [a, b, c] = [await hold(), await hold(), await hold()];
    await expect(release(b)).resolves.toBe(0);
    await expect(takenOf()).resolves.toBe('101');
    expect(await granted(leaseFor())).toMatchObject({ slot: 1 });
    await release(b);
    await expect(takenOf()).resolves.toBe('111');
    await releaseAll([a, c]);
    await expect(takenOf()).resolves.toBe('010');
    await release(leaseFor('gone'));
    await expect(redis.exists('lock:{gone}')).resolves.toBe(0);
  });

  test('`RELEASE_PERMITS` frees a lapsed lease, and does not affect later holders in any mode', async () => {
    const [a, b] = [await hold('k', { ttl: 2 * TTL }), await hold()];
    await lapse(b);
    await release(b);
    await expect(takenOf()).resolves.toBe('100');
    await lapseAll();
    const writer = alone();
    await acquireAlone(writer);
    await release(a);
    await expect(stateOf()).resolves.toBe('H-');
    await releaseAlone(writer);
    const next = await hold();
    await release(a);
    await expect(extend(TTL, next)).resolves.toBe('1');
    await hold();
    await release(a);
    await expect(takenOf()).resolves.toBe('110');
  });

  test('`RELEASE_PERMITS` keeps the slot for minHold, and no later call extends or frees that slot', async () => {
    for (const many of [false, true]) {
      await redis.flushall();
      const others = many ? [await hold('k', { permits: 2, ttl: 10_000 })] : [];
      const lease = leaseFor('k', { permits: many ? 2 : 1 });
      await granted(lease);
      lease.acquired(performance.now(), 3 * TTL);
      await release(lease);
      await expectLife(recordKey(PREFIX, 'k'), 3 * TTL + LINGER_MS);
      const reply = await refused(leaseFor('k', { permits: many ? 2 : 1 }));
      expect([reply.holder, ...reply.others!].map(({ id }) => id)).toContain(lease.id);
      await expect(extend(9 * TTL, lease)).resolves.toBe('0');
      const late = leaseFor('k');
      Object.assign(late, { id: lease.id });
      await release(late);
      await expect(takenOf()).resolves.toBe(many ? '11' : '1');
      // Other leases get the other slots.
      await releaseAll(others);
      expect(await granted(leaseFor('k', { permits: 2 }))).toMatchObject({ slot: many ? 0 : 1 });
      await expect(redis.zscore(holdersKey(PREFIX, 'k'), lease.id)).resolves.not.toBeNull();
      await expect(extend(9 * TTL, lease)).resolves.toBe('0');
      await release(late);
      await lapse(lease);
      expect(await granted(leaseFor('k', { permits: 2 }))).toMatchObject({ slot: many ? 1 : 0 });
    }
  });

  test('`RELEASE_PERMITS` keeps the slot only for minHold when the ttl is longer', async () => {
    const [a, b] = [await hold('a', { ttl: 9 * TTL }), await hold('b', { ttl: 9 * TTL })];
    const other = await hold('b', { ttl: 2 * TTL });
    for (const lease of [a, b]) lease.acquired(performance.now(), TTL);
    await releaseAll([a, b]);
    await expectLife(recordKey(PREFIX, 'a'), TTL + LINGER_MS);
    await expectLife(recordKey(PREFIX, 'b'), 2 * TTL + LINGER_MS);
    await expect(acquireAlone(alone('b'))).resolves.toMatchObject({ holder: { id: other.id } });
  });

  test('`RELEASE_PERMITS` frees slots, or keeps them for minHold, when Redis is out of memory (S9)', async () => {
    const single = await hold('a');
    const [b, c, d] = [await hold(), await hold(), await hold()];
    const kept = await hold('kept');
    d.acquired(performance.now(), 2 * TTL);
    kept.acquired(performance.now(), 2 * TTL);
    await withoutMemory(async () => {
      await expect(releaseAll([single, b, c, d, kept])).resolves.toEqual([0, 0, 0, 0, 0]);
    });
    await expect(stateOf('a')).resolves.toBe('F-');
    await expect(takenOf()).resolves.toBe('001');
    await expectLife(recordKey(PREFIX, 'k'), 2 * TTL + LINGER_MS);
    await expectLife(recordKey(PREFIX, 'kept'), 2 * TTL + LINGER_MS);
    await expect(extend(9 * TTL, single, b, c, d, kept)).resolves.toBe('00000');
  });

  test('`RELEASE_PERMITS` does not change a value that is not a lock, and fails on a key of another type', async () => {
    await redis.set('lock:{a}', 'somebody');
    await redis.rpush('lock:{b}', 'not a lock');
    const lease = leaseFor(['a', 'b', 'c']);
    const mine = leaseFor('c');
    Object.assign(mine, { id: lease.id });
    await granted(mine);
    await expect(release(lease)).rejects.toThrow('WRONGTYPE');
    await expect(redis.get('lock:{a}')).resolves.toBe('somebody');
    await expect(stateOf('c')).resolves.toBe('F-');
  });
});

/** Takes random steps, and compares the results with a small model: the holder and the last token of each slot. */
class RandomWalk {
  grants = 0;
  readonly #holders = new Map<Lease, number>();
  readonly #tokens = new Map<number, number>();
  readonly #ended: Lease[] = [];
  #largest = 0;
  #state: number;

  constructor(seed: number) {
    this.#state = seed;
  }

  async step(): Promise<void> {
    const lease = this.#pick([...this.#holders.keys()]);
    const kind = this.#below(10);
    if (kind < 4) await this.#acquire();
    else if (kind < 6 && lease) await this.#release(lease);
    else if (kind === 6 && lease) assert.equal(await extend(TTL + this.#below(2 * TTL), lease), '1');
    else if (kind === 7) await this.#sendLate();
    else if (kind === 8 && lease) await this.#lapse(lease);
    else if (kind === 9) await this.#acquireAlone();
    // Every holder still has its slot and its token.
    for (const [each, slot] of this.#holders) {
      const { slots, token } = await granted(each);
      assert.deepEqual([slots, token], [[slot], this.#tokens.get(slot)]);
    }
  }

  async #acquire(): Promise<void> {
    const permits = this.#below(5) === 0 ? 6 : 4;
    const lease = leaseFor('k', { permits, ttl: TTL + this.#below(TTL) });
    const wish = this.#below(permits);
    const isExact = this.#below(5) === 0;
    const taken = [...this.#holders.values()];
    const reply = await acquire(lease, isExact ? exactly(wish) : this.#below(2) === 0 ? {} : from(wish));
    if (reply instanceof Error) throw reply;
    if (!reply.granted) {
      assert(isExact ? taken.includes(wish) : taken.filter((slot) => slot < permits).length === permits);
      return;
    }
    const slot = reply.slots![0]!;
    assert(!taken.includes(slot) && slot < permits);
    assert(!isExact || slot === wish);
    assert(reply.token > (this.#tokens.get(slot) ?? 0));
    this.#holders.set(lease, slot);
    this.#tokens.set(slot, reply.token);
    this.#largest = Math.max(this.#largest, reply.token);
    this.grants++;
  }

  async #release(lease: Lease): Promise<void> {
    await release(lease);
    this.#end(lease);
  }

  /** Sends requests of a lease that has ended; they change nothing. */
  async #sendLate(): Promise<void> {
    const lease = this.#pick(this.#ended);
    if (!lease) return;
    assert.equal(await extend(9 * TTL, lease), '0');
    await release(lease);
    assert.equal(await raise(lease, tokenAhead(1_000)), 0);
  }

  async #lapse(lease: Lease): Promise<void> {
    if (this.#holders.size === 1 || this.#below(5) === 0) {
      await lapseAll();
      for (const each of this.#holders.keys()) this.#end(each);
    } else {
      await lapse(lease);
      this.#end(lease);
    }
  }

  async #acquireAlone(): Promise<void> {
    const lease = alone();
    const reply = await acquireAlone(lease);
    if (reply instanceof Error) throw reply;
    // The test makes leases lapse, but does not change the expiry of their record. So the record can still cause a
    // refusal.
    if (!reply.granted) return;
    assert.equal(this.#holders.size, 0);
    assert(reply.token > this.#largest);
    this.#largest = reply.token;
    for (let slot = 0; slot < 6; slot++) this.#tokens.set(slot, reply.token);
    await releaseAlone(lease);
  }

  #end(lease: Lease): void {
    this.#holders.delete(lease);
    this.#ended.push(lease);
  }

  #pick<T>(list: readonly T[]): T | undefined {
    return list[this.#below(list.length)];
  }

  /** A random whole number below `limit`; a seed always gives the same numbers (mulberry32). */
  #below(limit: number): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % Math.max(1, limit);
  }
}

describe('the scripts for permits', () => {
  test.each([1, 2, 3, 4, 5, 6])(
    'the scripts never grant more than n permits, or one slot twice, in a random schedule (seed %i)',
    async (seed) => {
      const walk = new RandomWalk(seed);
      for (let step = 0; step < 400; step++) await walk.step();
      expect(walk.grants).toBeGreaterThan(50);
    },
  );

  test('the scripts grant 1,000 permits of a key, and grant 999 of them again after their holders have lapsed', async () => {
    const leases = Array.from({ length: 1_000 }, () => leaseFor('k', { permits: 1_000 }));
    const slots = new Set<number>();
    for (let at = 0; at < 1_000; at += 100)
      for (const answer of await askAll(leases.slice(at, at + 100).map((lease) => requestFor(lease))))
        slots.add(Number(String(answer).slice(16)));
    expect(slots.size).toBe(1_000);
    await refused(leaseFor('k', { permits: 1_000 }));
    const past = leases.slice(1).flatMap(({ id }) => [Date.now() - 5_000, id]);
    await redis.zadd(holdersKey(PREFIX, 'k'), ...past);
    expect(await granted(leaseFor('k', { permits: 1_000 }))).toMatchObject({ slot: expect.any(Number) });
    // The first request removes only some of the lapsed holders, and never a holder that has not lapsed.
    expect(await redis.zcard(holdersKey(PREFIX, 'k'))).toBeGreaterThan(800);
    const next = Array.from({ length: 998 }, () => leaseFor('k', { permits: 1_000 }));
    for (let at = 0; at < 998; at += 100) {
      const answers = await askAll(next.slice(at, at + 100).map((lease) => requestFor(lease)));
      for (const answer of answers) expect(answer).toEqual(expect.any(String));
    }
    await refused(leaseFor('k', { permits: 1_000 }));
    await expect(extend(TTL, leases[0]!, next[0]!)).resolves.toBe('11');
    await expect(redis.zcard(holdersKey(PREFIX, 'k'))).resolves.toBe(1_000);
  });
});

/** A waiter of a process whose random name consists of this letter. */
function waiterOf(letter: string, mode: 'x' | 's' | 'p' = 'p', key = 'k'): WaiterId {
  return waiterIn(({ x: 'exclusive', s: 'shared', p: 'permits' } as const)[mode], letter, key);
}

// A mark is a Redis key with the name of a waiter. It makes the node refuse later readers and later callers for a
// permit, unless they have the waiter's mode (S22).
describe('the queue of a key with permits', () => {
  const listener = (letter: string, mode?: 'x' | 's' | 'p') => listen(waiterOf(letter, mode));

  function isTurn(messages: readonly string[]): boolean {
    return messages.some((text) => text.startsWith('0 '));
  }

  function wait(waiter: WaiterId, waited: number, lease = leaseFor(waiter.keys)): Promise<Answer> {
    return ask(lease, { waiter, waited });
  }

  function waitAlone(waiter: WaiterId, waited: number): Promise<AcquireReply | Error> {
    return acquireAlone(alone(waiter.keys), { waiter, waited });
  }

  const fill = () => Promise.all([hold(), hold(), hold()]);

  test('the queue contains refused callers in the order in which they began to wait, and the record gets the flag `w`', async () => {
    await fill();
    const [late, early] = [waiterOf('a'), waiterOf('b')];
    expect(showsWaiters(await wait(late, 10))).toBe(true);
    await wait(early, 5_000);
    await ask(leaseFor(), { ordered: true });
    await expect(queue()).resolves.toEqual([early, late].map(waiterName));
    await expect(stateOf()).resolves.toBe('Pw');
    await expect(takenOf()).resolves.toBe('111');
  });

  test('the first waiter is notified when a permit is freed, and the next waiter at the next release', async () => {
    const [a, b] = [await listener('a'), await listener('b')];
    const [x, y] = await fill();
    await wait(a.waiter, 900);
    await wait(b.waiter, 500);
    await expect(release(x)).resolves.toBe(2);
    const told = await toldTo([a, b]);
    expect(told[0]).toEqual([`0 ${x.id} 1:host:a`]);
    expect(told[1]).toEqual([`200 ${x.id} 1:host:b`]);
    const [, answer] = await together(() => [release(y), wait(a.waiter, 950)]);
    // The waiter b is still in the queue, and is notified of the second slot.
    expect(readAcquirePermitsReply(answer)).toMatchObject({ granted: true });
    expect(isTurn((await toldTo([a, b]))[1]!)).toBe(true);
    expect(readAcquirePermitsReply(await wait(b.waiter, 600))).toMatchObject({ granted: true });
    await expect(queue()).resolves.toEqual([]);
  });

  test('a caller gets a permit only if the free slots outnumber the waiters in front of that caller', async () => {
    const [a, b] = [await listener('a'), await listener('b')];
    const [x, y] = await fill();
    await wait(a.waiter, 900);
    await wait(b.waiter, 500);
    const [, early] = await together(() => [release(x), wait(b.waiter, 500)]);
    expect(early).toEqual([-4, a.name, expect.any(Number)]);
    const [, second, newcomer] = await together(() => [
      release(y),
      wait(b.waiter, 500),
      ask(leaseFor(), { ordered: true }),
    ]);
    expect(readAcquirePermitsReply(second)).toMatchObject({ granted: true });
    expect(newcomer).toEqual([-4, a.name, expect.any(Number)]);
    expect(readAcquirePermitsReply(await wait(a.waiter, 1_000))).toMatchObject({ granted: true });
  });

  test('waiters of dead processes and waiters that miss their turn are removed from the queue', async () => {
    const [hung, next] = [await listener('a'), await listener('b')];
    const [x] = await fill();
    await wait(waiterOf('9'), 1_500);
    await wait(hung.waiter, 900);
    await wait(next.waiter, 500);
    await release(x);
    await expect(queue()).resolves.toEqual([hung.name, next.name]);
    await until(async () => typeof (await wait(next.waiter, 600)) === 'string');
    await expect(takenOf()).resolves.toBe('111');
    await expect(redis.exists(queueKey(PREFIX, 'k'))).resolves.toBe(0);
  });

  test('the first waiter is notified at the next request after a holder has lapsed', async () => {
    const first = await listener('a');
    const [x] = await fill();
    await wait(first.waiter, 900);
    await lapse(x);
    await expect(ask(leaseFor(), { ordered: true })).resolves.toEqual([-4, first.name, expect.any(Number)]);
    expect(isTurn((await toldTo([first]))[0]!)).toBe(true);
    expect(readAcquirePermitsReply(await wait(first.waiter, 950))).toMatchObject({
      granted: true,
      slots: [0],
    });
  });

  test('later callers for a permit are refused while the mark of a waiting writer is set (S22)', async () => {
    const holder = await hold();
    const writer = await listener('x', 'x');
    const came = Date.now() - 500_000;
    await expect(waitAlone(writer.waiter, 500)).resolves.toMatchObject({ granted: false });
    await redis.set(markKey(PREFIX, 'k'), `${came}:${writer.name}`, 'PX', TTL);
    const newcomer = await ask(leaseFor());
    expect(newcomer).toEqual([-4, writer.name, expect.any(Number)]);
    expect(readAcquirePermitsReply(newcomer)).toMatchObject({ granted: false, holder: { owner: 'host:x' } });
    // Even on a node that does not keep the queue, the mark does not refuse a caller that began to wait before the
    // writer.
    const early = waiterOf('e');
    expect(await acquire(leaseFor(), { waiter: early, waited: 5_000, ordered: false })).toMatchObject({
      granted: true,
    });
    expect(await acquire(leaseFor(), { waiter: early, waited: 100, ordered: false })).toMatchObject({
      granted: false,
    });
    // A repeated request of a held lease is granted.
    expect(await granted(holder)).toMatchObject({ slot: 0 });
    await redis.del(markKey(PREFIX, 'k'));
    expect(await acquire(leaseFor(), { ordered: true })).toMatchObject({ granted: true });
  });

  test('a free key with the mark of an earlier writer is refused, and the other keys of the command are granted', async () => {
    const writer = waiterOf('x', 'x');
    await redis.set(markKey(PREFIX, 'k'), `${Date.now() - 500_000}:${waiterName(writer)}`, 'PX', TTL);
    for (const ordered of [true, false]) {
      const [before, kept, after] = ['a', 'k', 'b'].map((key) =>
        leaseFor(`${key}${key === 'k' ? '' : ordered}`),
      );
      const answers = await askAll(
        [before!, kept!, after!].map((lease) => requestFor(lease)),
        { ordered },
      );
      const tokens = answers
        .map((answer) => readAcquirePermitsReply(answer))
        .map((reply) => (reply as { token?: number }).token);
      expect(tokens).toEqual([expect.any(Number), undefined, tokens[0]]);
      expect(answers[1]).toEqual([-4, waiterName(writer), expect.any(Number)]);
    }
    await expect(recordOf()).resolves.toBeNull();
  });

  test('the record of the first permit contains the last token of the earlier record', async () => {
    const token = await tokenAlone();
    for (const [lease, terms] of [[leaseFor()], [leaseFor(), exactly(0)]] as const) {
      const last = Number((await recordOf())!.slice(2, 18));
      expect(last).toBeGreaterThanOrEqual(token);
      await granted(lease, terms);
      expect(Number((await recordOf())!.slice(-16))).toBe(last);
      await release(lease);
    }
  });

  test('the mark of a waiting writer has its effect even if the Redis user may not run EXISTS', async () => {
    await redis.call('ACL', 'SETUSER', 'few', 'on', '>secret', '~*', '&*', '+@all', '-exists');
    const few = server.client({ username: 'few', password: 'secret' });
    const writer = waiterOf('w', 'x');
    await redis.set(markKey(PREFIX, 'marked'), `${Date.now() - 500_000}:${waiterName(writer)}`, 'PX', TTL);
    const requests = ['free', 'marked'].map((key) => requestFor(leaseFor(key)));
    const packed = packAcquirePermits(requests, commandFor(requests, {}));
    const answers = acquireAnswers(await run(ACQUIRE_PERMITS, packed, few), requests);
    expect(answers.slice(0, 2)).toEqual([
      expect.stringMatching(/^\d{20}$/),
      [-4, waiterName(writer), expect.any(Number)],
    ]);
    few.disconnect();
    await redis.call('ACL', 'DELUSER', 'few');
  });

  test('permits are granted while the mark of a waiter for permits is set', async () => {
    await hold();
    await redis.set(markKey(PREFIX, 'k'), `${Date.now() - 500_000}:${waiterName(waiterOf('a'))}`, 'PX', TTL);
    await expect(granted(leaseFor())).resolves.toMatchObject({ slot: 1 });
  });

  test('no caller passes a waiting writer on a free key, and the writer is notified', async () => {
    const writer = await listener('x', 'x');
    const held = await fill();
    await waitAlone(writer.waiter, 900);
    await releaseAll(held);
    expect(isTurn((await toldTo([writer]))[0]!)).toBe(true);
    // The stored turn is deleted, so the next request begins a new turn.
    await redis.zremrangebyscore(queueKey(PREFIX, 'k'), -1, -1);
    const refusal = [-4, writer.name, expect.any(Number)];
    await expect(
      together(() => [ask(leaseFor(), { ordered: true }), ask(leaseFor(), { ordered: true })]),
    ).resolves.toEqual([refusal, refusal]);
    expect(isTurn((await toldTo([writer]))[0]!)).toBe(true);
    await expect(waitAlone(writer.waiter, 950)).resolves.toMatchObject({ granted: true });
  });

  test('the mark of a waiting writer is set when the first permit is granted', async () => {
    const writer = alone();
    await acquireAlone(writer);
    const [first, other] = [await listener('a'), await listener('x', 'x')];
    await wait(first.waiter, 900);
    await waitAlone(other.waiter, 500);
    await releaseAlone(writer);
    expect(readAcquirePermitsReply(await wait(first.waiter, 950))).toMatchObject({ granted: true });
    expect((await redis.get(markKey(PREFIX, 'k')))!.slice(14)).toBe(other.name);
    await expect(ask(leaseFor(), { ordered: true })).resolves.toEqual([-4, other.name, expect.any(Number)]);
  });

  test('the remaining requests of a command are refused if the first grant of the command has set the mark of a writer', async () => {
    const writer = alone();
    await acquireAlone(writer);
    const [first, other] = [await listener('a'), await listener('x', 'x')];
    await wait(first.waiter, 900);
    await waitAlone(other.waiter, 500);
    await releaseAlone(writer);
    const waiting = requestFor(leaseFor(), { waiter: first.waiter, waited: 950 });
    const [given, kept] = await askAll([waiting, requestFor(leaseFor())], { ordered: true });
    expect(readAcquirePermitsReply(given)).toMatchObject({ granted: true });
    expect(kept).toEqual([-4, other.name, expect.any(Number)]);
  });

  test('the first waiter is notified when a lease that requires a different slot frees its present slot', async () => {
    const first = await listener('a');
    const [x, y] = await fill();
    await wait(first.waiter, 900);
    await refused(y, { ...exactly(0), ordered: true });
    expect(isTurn((await toldTo([first]))[0]!)).toBe(true);
    expect(x.ended).toBe(false);
  });

  test('only a record that expires within LINGER_MS remains after the last release', async () => {
    const all = await Promise.all(['a', 'b'].map((letter) => listener(letter)));
    const held = await Promise.all([hold('k', { ttl: 9 * TTL }), hold(), hold()]);
    const leases = [leaseFor(), leaseFor('k', { ttl: 20 * TTL })];
    for (const [index, { waiter }] of all.entries()) await wait(waiter, 900 - index * 100, leases[index]);
    await releaseAll(held);
    for (const [index, { waiter }] of all.entries())
      expect(readAcquirePermitsReply(await wait(waiter, 1_000 - index * 100, leases[index]))).toMatchObject({
        granted: true,
      });
    await releaseAll(leases);
    await expect(redis.keys('*')).resolves.toEqual(['lock:{k}']);
    await expectNothingAfterLinger();
  });
});

test('`readAcquirePermitsReply` accepts numbers that a client returns as strings', () => {
  const details = `0000000000000005:0002:1700000000000:them`;
  expect(readAcquirePermitsReply(['0', '000000000000000700010003', '2'])).toEqual({
    granted: true,
    token: 7,
    nextIsFirst: true,
    slots: [1, 3],
  });
  expect(readAcquirePermitsReply(['1', ['e'.repeat(32), details, '90'], '3'])).toEqual({
    granted: false,
    holder: {
      id: 'e'.repeat(32),
      owner: 'them',
      remaining: 90,
      since: 1_700_000_000_000,
      fencingToken: 5,
      mode: 'permits',
      slot: 2,
    },
    others: [],
    permits: 3,
  });
});

test.each(['no number', '', null, undefined, 0, -1, '0'.repeat(20), '0000000000000007', '9'.repeat(20)])(
  '`readAcquirePermitsReply` rejects %p as a fencing token with a slot',
  (reply) => {
    expect(readAcquirePermitsReply(reply)).toBeInstanceOf(Error);
    expect(readAcquirePermitsReply([0, reply, 1])).toBeInstanceOf(Error);
  },
);
