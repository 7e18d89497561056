import { describe, expect, test } from '@jest/globals';
import { LEAD_MS, tokenAt } from '../../../lib/core/fencing-token.js';
import { Lease } from '../../../lib/core/lease.js';
import { EXCLUSIVE, type LockKind, type LockMode, SHARED } from '../../../lib/core/lock-mode.js';
import type { AcquireReply, AcquireRequest, HeldKey, KeyHolder } from '../../../lib/core/ports.js';
import { LINGER_MS, MARK_MS } from '../../../lib/core/store-times.js';
import type { WaiterId } from '../../../lib/core/waiter-id.js';
import { detailsKey, holdersKey, markKey, queueKey, recordKey } from '../../../lib/stores/redis/lock-key.js';
import { parseRecord, waiterName } from '../../../lib/stores/redis/record.js';
import { tooYoungFor } from '../../../lib/stores/redis/scripts/acquire-answer.js';
import { releaseAnswer } from '../../../lib/stores/redis/scripts/release-command.js';
import { ACQUIRE_SHARED } from '../../../lib/stores/redis/scripts/acquire-shared.js';
import { EXTEND_SHARED } from '../../../lib/stores/redis/scripts/extend-shared.js';
import { FORCE_RELEASE, packForceRelease } from '../../../lib/stores/redis/scripts/force-release.js';
import { HOLD_BACK, packHoldBack } from '../../../lib/stores/redis/scripts/hold-back.js';
import { LEAVE, packLeave } from '../../../lib/stores/redis/scripts/leave.js';
import { LET_PASS, packLetPass } from '../../../lib/stores/redis/scripts/let-pass.js';
import { scriptsFor } from '../../../lib/stores/redis/scripts/mode-scripts.js';
import { RAISE_SHARED } from '../../../lib/stores/redis/scripts/raise-shared.js';
import { packRead, READ, readPage } from '../../../lib/stores/redis/scripts/read.js';
import { ROUND_MS } from '../../../lib/stores/redis/scripts/readers.js';
import { RELEASE_SHARED } from '../../../lib/stores/redis/scripts/release-shared.js';
import {
  answersTo,
  BASE,
  commandFor,
  ENDED,
  expectAbout,
  FOREIGN,
  listen,
  type Listener,
  MARKER,
  PATIENCE,
  PREFIX,
  recordOf,
  redis,
  requestFor,
  run,
  server,
  snapshot,
  type Terms,
  toldTo,
  TTL,
  waiterIn,
  withoutMemory,
} from './script-bench.js';
import { until } from '../../support/until.js';

/** Milliseconds; shorter than `TTL`, and still longer than a test takes. */
const SHORT = 40_000;

interface LeaseTerms {
  readonly owner?: string;
  readonly ttl?: number;
  readonly kind?: LockKind;
}

function reader(
  keys: string | readonly string[] = 'k',
  { owner = 'me', ttl = TTL, kind = SHARED }: LeaseTerms = {},
): Lease {
  return new Lease(typeof keys === 'string' ? [keys] : keys, owner, ttl, undefined, kind);
}

function writer(keys: string | readonly string[] = 'k', terms: LeaseTerms = {}): Lease {
  return reader(keys, { ...terms, kind: EXCLUSIVE });
}

interface ReaderTerms extends Terms {
  /** The leases that have no waiter. */
  readonly newcomers?: readonly Lease[];
}

/** Runs the acquire script for the mode of these leases; returns the answer for each lease. */
async function ask(
  leases: readonly Lease[],
  { newcomers = [], ...terms }: ReaderTerms = {},
): Promise<(AcquireReply | Error)[]> {
  const requests = leases.map((lease): AcquireRequest => ({
    ...requestFor(lease, newcomers.includes(lease) ? { ...terms, waiter: undefined } : terms),
    since: 1_700_000_000_000,
  }));
  const { script, pack, read: readReply } = scriptsFor(leases[0]!).acquire;
  const answers = await answersTo(requests, script, pack(requests, commandFor(requests, terms)));
  return answers.map((answer) => {
    const young = tooYoungFor(answer);
    return young === undefined ? readReply(answer) : new Error(`too young for ${young} ms`);
  });
}

async function acquire(lease: Lease, terms?: Terms): Promise<AcquireReply> {
  const [reply] = await ask([lease], terms);
  if (reply instanceof Error) throw reply;
  return reply!;
}

/** Acquires a lease that must be granted; returns the fencing token. */
async function granted(lease: Lease, terms?: Terms): Promise<number> {
  const reply = await acquire(lease, terms);
  if (!reply.granted) throw new Error(`refused: ${JSON.stringify(reply)}`);
  return reply.token;
}

/** Acquires a lease that must be refused; returns the holder or waiter that the refusal names. */
async function refusal(lease: Lease, terms?: Terms): Promise<KeyHolder> {
  const reply = await acquire(lease, terms);
  if (reply.granted) throw new Error('granted');
  return reply.holder as KeyHolder;
}

async function extend(ttl: number, ...leases: readonly Lease[]): Promise<string> {
  const { script, pack } = scriptsFor(leases[0]!).extend;
  return (await run(script, pack(leases, ttl, PREFIX, BASE))) as string;
}

async function releaseAll(leases: readonly Lease[], pause = 0): Promise<unknown[]> {
  const { script, pack } = scriptsFor(leases[0]!).release;
  const requests = leases.map((lease) => ({ lease, pause }));
  const reply = await run(script, pack(requests, PREFIX, BASE));
  return leases.map((_, index) => releaseAnswer(reply, index));
}

/** Releases this lease alone; returns the number of notified waiters. */
async function release(lease: Lease, pause?: number): Promise<unknown> {
  const [answer] = await releaseAll([lease], pause);
  if (answer instanceof Error) throw answer;
  return answer;
}

async function raise(lease: Lease, token: number, marker?: string): Promise<unknown> {
  const { script, pack } = scriptsFor(lease).raise;
  return run(script, pack(lease, token, PREFIX, marker));
}

async function forceRelease(key: string, ...ids: readonly string[]): Promise<unknown> {
  return run(FORCE_RELEASE, packForceRelease(key, ids, PREFIX, BASE));
}

async function read(key = 'k'): Promise<HeldKey | undefined> {
  const [found] = (await run(READ, packRead([key], PREFIX))) as unknown[];
  const { state } = readPage(found);
  if (state instanceof Error) throw state;
  return state;
}

async function idsOf(key = 'k'): Promise<string[]> {
  return (await read(key))?.holders.map(({ id }) => id) ?? [];
}

/** @param waited - seconds that the waiter has waited */
function setMark(waiter: WaiterId, waited = 0): Promise<unknown> {
  return run(HOLD_BACK, packHoldBack(waiter, waited * 1_000, PREFIX));
}

/**
 * Sets a mark that lasts for the whole test. By itself a mark lasts for two seconds, which a busy machine may use up.
 */
async function holdBack(waiter: WaiterId, waited?: number): Promise<void> {
  await setMark(waiter, waited);
  await lengthenMarks(waiter.keys);
}

async function lengthenMarks(keys: readonly string[] = ['k']): Promise<void> {
  for (const key of keys) await redis.pexpire(markKey(PREFIX, key), TTL);
}

function letPass(waiter: WaiterId): Promise<unknown> {
  return run(LET_PASS, packLetPass(waiter, PREFIX));
}

function leave(waiter: WaiterId): Promise<unknown> {
  return run(LEAVE, packLeave(waiter, PREFIX, BASE));
}

/** Makes a lease look as if its ttl had passed. Another lease of each key must last longer. */
async function lapse({ id, keys }: Lease): Promise<void> {
  for (const key of keys) {
    await expect(redis.zadd(holdersKey(PREFIX, key), 'XX', 'CH', Date.now() - 1_000, id)).resolves.toBe(1);
  }
}

/**
 * Expects a record to expire after `life` milliseconds, or a little sooner, and the set and the hash of its holders
 * soon after the record.
 */
async function expectToOutlive(key: string, life: number): Promise<void> {
  const left = await redis.pttl(recordKey(PREFIX, key));
  expectAbout(left, life);
  for (const beside of [holdersKey(PREFIX, key), detailsKey(PREFIX, key)]) {
    const more = (await redis.pttl(beside)) - left;
    expect(more).toBeGreaterThan(ROUND_MS - 1_000);
    expect(more).toBeLessThan(2 * ROUND_MS + 1_000);
  }
}

const waiterOf = (letter: string, mode: LockMode, ...keys: readonly string[]) =>
  waiterIn(mode, letter, ...keys);

test.each(
  Object.entries({ ACQUIRE_SHARED, EXTEND_SHARED, RELEASE_SHARED, RAISE_SHARED, HOLD_BACK, LET_PASS }),
)('the hash of the script %s equals the hash that Redis computes', async (_name, { lua, sha }) => {
  await expect(redis.script('LOAD', lua)).resolves.toBe(sha);
});

describe('readers', () => {
  test('all readers of a lock are stored in one record, one sorted set and one hash, each with an expiry', async () => {
    await granted(reader(), {});
    await granted(reader(), {});
    const keys = (await redis.keys('*')).toSorted();
    expect(keys).toEqual(['lock:{k}', 'lock:{k}:h', 'lock:{k}:s']);
    await expectToOutlive('k', TTL + LINGER_MS);
  });

  test('after all earlier readers have released, a new reader gets a larger token, which can be the proposed token', async () => {
    const first = reader();
    const token = await granted(first);
    await release(first);
    const proposal = tokenAt(Date.now() + LEAD_MS - 100);
    expect(proposal).toBeGreaterThan(token);
    const second = reader();
    await expect(granted(second, { proposal })).resolves.toBe(proposal);
    await release(second);
    // The proposal is ahead of the clock, so only the token in the record can make the next token larger.
    await expect(granted(reader())).resolves.toBe(proposal + 1);
  });

  test('a repeated request of a reader gets the same token, and changes nothing in Redis', async () => {
    const [lease, late] = [reader(['a', 'b'], { ttl: SHORT }), reader(['a', 'b'])];
    const token = await granted(lease);
    await granted(late);
    await raise(late, token + 5);
    const before = await snapshot();
    await expect(granted(lease)).resolves.toBe(token);
    await expect(granted(lease, { deadline: -1_000 })).resolves.toBe(token);
    await expect(granted(late)).resolves.toBe(token + 5);
    await expect(snapshot()).resolves.toEqual(before);
  });

  test('a repeated request of a reader fails after that reader has lapsed, or after the last reader has released', async () => {
    const [lapsed, last] = [reader('k', { ttl: SHORT }), reader()];
    await granted(lapsed);
    await granted(last);
    await lapse(lapsed);
    await expect(acquire(lapsed)).rejects.toThrow(ENDED);
    await release(last);
    await expect(acquire(last)).rejects.toThrow(ENDED);
  });

  test.each([true, false])(
    'one command for several readers gets a separate answer for each request (the node keeps the queue: %p)',
    async (ordered) => {
      await granted(writer('held'));
      await holdBack(waiterOf('w', 'exclusive', 'marked'), 1_000);
      const old = reader('old');
      const past = await granted(old);
      await release(old);
      const joined = await granted(reader('joined'));
      const keys = ['free', 'old', 'held', 'free', 'marked', 'joined', 'last'];
      const replies = await ask(
        keys.map((key) => reader(key)),
        { ordered },
      );
      const tokens = replies.map((reply) => (reply as { token?: number }).token);
      expect(replies.map((reply) => (reply as AcquireReply).granted)).toEqual(
        keys.map((key) => key !== 'held' && key !== 'marked'),
      );
      expect(tokens[1]).toBeGreaterThan(past);
      expect(tokens[3]).toBe(tokens[0]);
      expect(tokens[5]).toBe(joined);
      await expect(idsOf('free')).resolves.toHaveLength(2);
      await expect(idsOf('last')).resolves.toHaveLength(1);
      await expect(redis.exists('lock:{marked}')).resolves.toBe(0);
    },
  );

  test('a reader of several keys gets one token, and smaller tokens of these keys are raised to this token', async () => {
    const [a, b] = [reader('a'), reader('b')];
    await granted(a);
    const joined = await granted(b, { proposal: tokenAt(Date.now() + LEAD_MS) });
    const token = await granted(reader(['a', 'b', 'c'], { ttl: 1_000 }));
    expect(token).toBe(joined);
    for (const key of ['a', 'b', 'c']) expect(parseRecord((await recordOf(key))!).fencingToken).toBe(token);
    // The record still names the reader that expires last.
    expect(parseRecord((await recordOf('a'))!).id).toBe(a.id);
  });

  test('the request of a reader fails after its deadline, and while the data in Redis is younger than the restart guard (S12, S16)', async () => {
    await expect(acquire(reader(), { deadline: -1_000 })).rejects.toThrow(/got the request \d+ ms too late/);
    await expect(acquire(reader(), { guard: PATIENCE })).rejects.toThrow(/^too young/);
    await expect(redis.keys('*')).resolves.toEqual([MARKER]);
  });

  test("a reader gets a larger token than the token in the node's marker, and the marker is raised to the larger token", async () => {
    const high = tokenAt(Date.now() + 3_600_000);
    await redis.set(MARKER, `${'1'.padStart(16, '0')}:${String(high).padStart(16, '0')}`);
    await expect(granted(reader(), { marked: true })).resolves.toBe(high + 1);
    expect(Number((await redis.get(MARKER))!.slice(17))).toBe(high + 1);
  });

  test('readers fail and store nothing when Redis is out of memory (S9)', async () => {
    await withoutMemory(async () => {
      await expect(acquire(reader())).rejects.toThrow(/^OOM/);
    });
    await expect(redis.dbsize()).resolves.toBe(0);
    await granted(reader());
    const before = await snapshot();
    await withoutMemory(async () => {
      await expect(acquire(reader())).rejects.toThrow(/^OOM/);
    });
    await expect(snapshot()).resolves.toEqual(before);
  });

  test.each([
    ['record', 'lock:{k}'],
    ['mark', 'lock:{k}:w'],
  ])(
    'a reader never overwrites a value of another Redis type at the key for the %s (S19)',
    async (_what, key) => {
      await redis.rpush(key, 'not ours');
      const [refused, other] = await ask([reader(), reader('other')]);
      expect(refused).toMatchObject({ message: expect.stringMatching(/^WRONGTYPE/) as unknown });
      expect(other).toMatchObject({ granted: true });
      await expect(redis.lrange(key, 0, -1)).resolves.toEqual(['not ours']);
      await expect(redis.keys('lock:{k}*')).resolves.toEqual([key]);
      await expect(extend(TTL, reader())).resolves.toBe('0');
    },
  );

  test.each([
    ['set', 'lock:{k}:h', 'lock:{k}:s'],
    ['hash', 'lock:{k}:s', 'lock:{k}:h'],
  ])(
    'a reader never overwrites a value of another Redis type at the key for the %s of readers',
    async (_what, key, other) => {
      await redis.rpush(key, 'not ours');
      const lease = reader();
      await granted(lease);
      await expect(acquire(reader())).rejects.toThrow(/WRONGTYPE/);
      await expect(acquire(reader(['a', 'k']))).rejects.toThrow(/WRONGTYPE/);
      await expect(idsOf()).resolves.toEqual([lease.id]);
      await release(lease);
      await expect(redis.lrange(key, 0, -1)).resolves.toEqual(['not ours']);
      await expect(redis.exists(other, 'lock:{a}')).resolves.toBe(0);
    },
  );

  test('the request of a reader fails if the key of the lock or of its mark contains a foreign string', async () => {
    await redis.set('lock:{a}', 'somebody');
    await redis.set('lock:{b}:w', 'somebody');
    await expect(ask([reader('a'), reader('b')])).resolves.toEqual([
      expect.objectContaining({ message: expect.stringContaining(FOREIGN) as unknown }),
      expect.objectContaining({ message: expect.stringContaining(FOREIGN) as unknown }),
    ]);
  });

  test('readers ignore data that lapsed readers or permits have left', async () => {
    for (const state of ['S', 'P', 'F', 'H']) {
      await redis.flushall();
      const [old, last] = [reader('k', { ttl: SHORT }), reader()];
      await granted(old);
      const token = await granted(last);
      await lapse(old);
      await redis.zadd('lock:{k}:h', -1, '#0', -2, '#1');
      await redis.hset('lock:{k}:s', '0', '5', 'n', '2', 'f', '1');
      await redis.setrange('lock:{k}', 0, state);
      await redis.pexpire('lock:{k}', LINGER_MS);
      // If the record has another state, the script cannot know that an earlier reader has ended. Then only the
      // deadline can stop a late request of that reader (S16).
      const known = state === 'S' ? [old, last] : [last];
      for (const ended of known) await expect(acquire(ended)).rejects.toThrow(ENDED);
      const [lease, second] = [reader(), reader()];
      await expect(granted(lease)).resolves.toBeGreaterThan(token);
      await expect(idsOf()).resolves.toEqual([lease.id]);
      await expect(extend(TTL, old, last, lease)).resolves.toBe('001');
      await granted(second);
      expect((await idsOf()).toSorted()).toEqual([lease.id, second.id].toSorted());
      await expect(redis.zcard('lock:{k}:h')).resolves.toBe(1);
      await expect(redis.hlen('lock:{k}:s')).resolves.toBe(1);
    }
  });
});

describe('the expiry of a reader', () => {
  test('expired readers leave entries in Redis, and each later reader removes about 500 of these entries', async () => {
    const dead = Array.from({ length: 1_200 }, () => reader('k', { ttl: SHORT }));
    for (let at = 0; at < dead.length; at += 100) await ask(dead.slice(at, at + 100));
    await granted(reader());
    await redis.zadd('lock:{k}:h', 'XX', ...dead.flatMap(({ id }) => [Date.now() - 1_000, id]));
    const joins = [reader('k', { ttl: 2 * TTL }), reader('k', { ttl: TTL }), reader('k', { ttl: 3 * TTL })];
    for (const [index, left] of [701, 202, 3].entries()) {
      await granted(joins[index]!);
      await expect(redis.zcard('lock:{k}:h')).resolves.toBe(left);
      await expect(redis.hlen('lock:{k}:s')).resolves.toBe(left);
    }
  });

  test('the expiry of a reader does not change when another reader has a shorter ttl (S23)', async () => {
    const [long, short] = [reader(), reader('k', { ttl: 100 })];
    await granted(long);
    await granted(short);
    await extend(100, short);
    await expectToOutlive('k', TTL + LINGER_MS);
    const state = await read();
    expect(state?.holders.at(-1)?.id).toBe(long.id);
    expectAbout(state!.holders.at(-1)!.remaining, TTL);
    await release(short);
    expectAbout((await refusal(writer())).remaining, TTL);
  });

  test('an extension makes a reader expire later, and never earlier', async () => {
    const [one, other] = [reader('k', { ttl: SHORT, owner: 'one' }), reader('k', { owner: 'other' })];
    await granted(one);
    await granted(other);
    await expect(extend(2 * TTL, one)).resolves.toBe('1');
    await expect(extend(1_000, one, other)).resolves.toBe('11');
    const holder = await refusal(writer());
    // The record names the reader that expires last.
    expect(holder).toMatchObject({ id: one.id, owner: 'one', since: 1_700_000_000_000 });
    expectAbout(holder.remaining, 2 * TTL);
    await expectToOutlive('k', 2 * TTL + LINGER_MS);
    const { holders } = (await read())!;
    expect(holders.map(({ id }) => id)).toEqual([other.id, one.id]);
    expectAbout(holders[0]!.remaining, TTL);
  });

  test('an extension changes the expiry of a reader for all keys of its lease or for none', async () => {
    const lease = reader(['a', 'b']);
    await granted(lease);
    await granted(reader('b', { ttl: 2 * TTL }));
    await redis.zrem('lock:{b}:h', lease.id);
    const before = await snapshot();
    await expect(extend(2 * TTL, lease)).resolves.toBe('0');
    await expect(snapshot()).resolves.toEqual(before);
  });

  test.each(['H', 'F', 'K', 'P'])(
    'the extension of a reader changes nothing when the record of the lock has the state letter %s',
    async (state) => {
      const lease = reader();
      await granted(lease);
      await redis.setrange('lock:{k}', 0, state);
      const before = await snapshot();
      await expect(extend(2 * TTL, lease)).resolves.toBe('0');
      await expect(snapshot()).resolves.toEqual(before);
    },
  );

  test('the extension of a reader is refused after the record of the lock has lapsed', async () => {
    const lease = reader();
    await granted(lease);
    await redis.pexpire('lock:{k}', LINGER_MS);
    await expect(extend(TTL, lease)).resolves.toBe('0');
  });

  test('an extension restores a lost expiry of the record if the extended reader then expires last', async () => {
    const [long, short] = [reader(), reader('k', { ttl: SHORT })];
    await granted(long);
    await granted(short);
    await redis.persist('lock:{k}');
    await expect(extend(SHORT + 1_000, short)).resolves.toBe('1');
    // The other reader still expires later.
    await expect(redis.pttl('lock:{k}')).resolves.toBe(-1);
    await expect(extend(TTL, short)).resolves.toBe('1');
    await expect(extend(1_000, long)).resolves.toBe('1');
    expectAbout(await redis.pttl('lock:{k}'), TTL + LINGER_MS);
    expect(await redis.pttl('lock:{k}')).toBeGreaterThan(LINGER_MS + PATIENCE);
  });

  test('an extension makes a reader and the record of its lock expire later, even if the hash of readers is missing', async () => {
    const lease = reader('k', { ttl: SHORT });
    await granted(lease);
    const last = reader();
    await granted(last);
    await redis.del('lock:{k}:s');
    await expect(extend(3 * TTL, lease)).resolves.toBe('1');
    await release(last);
    await expect(refusal(writer())).resolves.toMatchObject({ id: lease.id });
    expect(await redis.pttl('lock:{k}')).toBeGreaterThan(2 * TTL);
  });

  test('an extension and a release of a reader work when Redis is out of memory (S9)', async () => {
    const [one, other] = [reader('k', { owner: 'one' }), reader('k', { ttl: 2 * TTL, owner: 'other' })];
    await granted(one);
    await granted(other);
    await withoutMemory(async () => {
      await expect(extend(1.5 * TTL, one)).resolves.toBe('1');
      await expect(extend(3 * TTL, one)).resolves.toBe('1');
      await release(one);
    });
    const { holders } = (await read())!;
    expect(holders.map(({ id }) => id)).toEqual([other.id]);
    expect(parseRecord((await recordOf())!)).toMatchObject({ id: other.id, owner: 'other' });
    expectAbout(await redis.pttl('lock:{k}'), 2 * TTL + LINGER_MS);
    await withoutMemory(async () => {
      await release(other);
    });
    expect(await recordOf()).toMatch(/^F/);
    await expect(redis.keys('*')).resolves.toEqual(['lock:{k}']);
  });
});

describe('the release of a reader', () => {
  test('the release of a reader ends only the lease of that reader, and a second release has no effect (S7)', async () => {
    const [one, other] = [reader(), reader()];
    await granted(one);
    await granted(other);
    await release(one);
    const before = await snapshot();
    await release(one);
    await release(reader());
    await expect(snapshot()).resolves.toEqual(before);
    await expect(idsOf()).resolves.toEqual([other.id]);
  });

  test('after the release of a reader, the record names the remaining reader with the latest expiry, and expires with that reader', async () => {
    const [long, short] = [reader('k', { ttl: 10 * TTL }), reader('k', { owner: 'short' })];
    for (const lease of [long, short, reader('k', { ttl: SHORT })]) await granted(lease);
    await release(long);
    await expect(redis.keys('*')).resolves.toHaveLength(3);
    await expect(idsOf()).resolves.toHaveLength(2);
    const holder = await refusal(writer());
    expect(holder).toMatchObject({ id: short.id, owner: 'short' });
    expectAbout(holder.remaining, TTL);
    await expectToOutlive('k', TTL + LINGER_MS);
  });

  test('a release deletes all Redis keys of the lock except the record when a single reader remains', async () => {
    const [one, other] = [reader('k', { owner: 'one' }), reader('k', { ttl: 2 * TTL })];
    const token = await granted(one);
    await granted(other);
    await release(other);
    await expect(redis.keys('*')).resolves.toEqual(['lock:{k}']);
    const holders = [{ id: one.id, owner: 'one', since: 1_700_000_000_000, fencingToken: token }];
    expect((await read())!.holders).toEqual([expect.objectContaining(holders[0]!)]);
    await expect(granted(one)).resolves.toBe(token);
    await expect(raise(one, token + 1)).resolves.toBe(1);
    await expect(extend(3 * TTL, one, other)).resolves.toBe('10');
    await expect(granted(reader())).resolves.toBe(token + 1);
    await expect(idsOf()).resolves.toHaveLength(2);
  });

  test('a release keeps the hash entry of the last remaining reader if the token in this entry differs from the token in the record', async () => {
    const [one, other] = [reader(), reader('k', { ttl: 2 * TTL })];
    const token = await granted(one);
    await granted(other);
    await raise(other, token + 5);
    await release(other);
    await expect(granted(one)).resolves.toBe(token);
    expect((await read())!.holders).toEqual([expect.objectContaining({ id: one.id, fencingToken: token })]);
    await expect(granted(reader())).resolves.toBe(token + 5);
  });

  test('the release of the last reader leaves only a free record with the token', async () => {
    const [one, other] = [reader(), reader()];
    const token = await granted(one);
    await granted(other);
    await releaseAll([one, other]);
    const before = await snapshot();
    await releaseAll([one, other]);
    await expect(snapshot()).resolves.toEqual(before);
    await expect(redis.keys('*')).resolves.toEqual(['lock:{k}']);
    expect(await recordOf()).toMatch(/^F-/);
    expect(parseRecord((await recordOf())!).fencingToken).toBe(token);
    expectAbout(await redis.pttl('lock:{k}'), LINGER_MS);
  });

  test('the release of a reader frees the lock when all other readers have lapsed', async () => {
    const [dead, alive] = [reader('k', { ttl: SHORT }), reader()];
    await granted(dead);
    await granted(alive);
    await lapse(dead);
    await release(alive);
    await expect(redis.keys('*')).resolves.toEqual(['lock:{k}']);
    await granted(writer());
  });

  test('the late release of a lapsed reader does not affect a writer that has acquired the lock', async () => {
    const lease = reader();
    await granted(lease);
    await redis.pexpire('lock:{k}', LINGER_MS);
    const next = writer();
    await granted(next);
    await release(lease);
    await expect(refusal(writer())).resolves.toMatchObject({ id: next.id });
  });

  test('the release of a reader fails on a Redis key of another type, and the same command still releases other locks', async () => {
    const [wrong, other] = [reader('a'), reader('b')];
    await granted(reader('a', { ttl: SHORT }));
    await granted(wrong);
    await granted(other);
    await redis.del('lock:{a}:s');
    await redis.rpush('lock:{a}:s', 'not ours');
    const [failed, told] = await releaseAll([wrong, other]);
    expect(failed).toMatchObject({ message: expect.stringMatching(/^WRONGTYPE/) as unknown });
    expect(told).toBe(0);
    expect(await recordOf('b')).toMatch(/^F/);
    await expect(redis.lrange('lock:{a}:s', 0, -1)).resolves.toEqual(['not ours']);
  });
});

describe('the token of a reader', () => {
  test('the token of a reader can be raised even if another reader has a larger token', async () => {
    const [one, other] = [reader(), reader('k', { ttl: SHORT })];
    const token = await granted(one);
    await granted(other);
    await expect(raise(one, token + 10)).resolves.toBe(1);
    await expect(raise(other, token + 5)).resolves.toBe(1);
    expect(parseRecord((await recordOf())!).fencingToken).toBe(token + 10);
    const { holders } = (await read())!;
    const tokens = Object.fromEntries(holders.map(({ id, fencingToken }) => [id, fencingToken]));
    expect(tokens).toEqual({ [one.id]: token + 10, [other.id]: token + 5 });
    // The next reader gets the largest token.
    await expect(granted(reader())).resolves.toBe(token + 10);
  });

  test.each([
    ['first', SHORT],
    ['last', 2 * TTL],
  ])(
    'a reader that heals beside other readers, and ends %s, raises the token of the phase to its own (S26)',
    async (_, ttl) => {
      const [one, other, healed] = [reader(), reader(), reader('k', { ttl })];
      const token = await granted(one);
      await granted(other);
      const ahead = tokenAt(Date.now() + 3_600_000);
      await expect(granted(healed, { heals: true, proposal: ahead })).resolves.toBe(ahead);
      const { holders } = (await read())!;
      const tokens = Object.fromEntries(holders.map(({ id, fencingToken }) => [id, fencingToken]));
      expect(tokens).toEqual({ [one.id]: token, [other.id]: token, [healed.id]: ahead });
      // A reader that heals with a smaller token gets the token of the phase.
      const another = reader();
      await expect(granted(another, { heals: true, proposal: token })).resolves.toBe(ahead);
      await releaseAll([healed, one, other, another]);
      await expect(granted(writer())).resolves.toBe(ahead + 1);
    },
  );

  test('the token of a reader is raised only if the reader holds all keys of its lease', async () => {
    const lease = reader(['a', 'b']);
    const token = await granted(lease);
    await granted(reader('b', { ttl: 2 * TTL }));
    await redis.zadd('lock:{b}:h', 'XX', Date.now() - 1, lease.id);
    const before = await snapshot();
    await expect(raise(lease, token + 10)).resolves.toBe(0);
    await expect(raise(reader('a'), token + 10)).resolves.toBe(0);
    await expect(snapshot()).resolves.toEqual(before);
  });

  test("the token of a reader can be raised far ahead of the clock only if the node's marker is raised, too", async () => {
    const lease = reader();
    await granted(lease, { marked: true });
    const ahead = tokenAt(Date.now() + 3_600_000);
    await expect(raise(lease, ahead)).resolves.toBe(0);
    await expect(raise(lease, ahead, MARKER)).resolves.toBe(1);
    expect(Number((await redis.get(MARKER))!.slice(17))).toBe(ahead);
    expect(parseRecord((await recordOf())!).fencingToken).toBe(ahead);
  });
});

// A mark is a Redis key with the name of a waiter. It makes the node refuse later readers and later callers for a
// permit, unless they have the waiter's mode (S22).
describe('the mark of a waiter', () => {
  const waiting = waiterOf('a', 'exclusive');

  test('the mark of a waiter excludes later readers, even on a node that keeps no queue, and the refusal names the waiter', async () => {
    await granted(reader());
    await holdBack(waiting, 500);
    const holder = await refusal(reader());
    expect(holder).toMatchObject({ owner: 'host:a' });
    await expect(
      acquire(reader(), { waiter: waiterOf('b', 'shared'), waited: 100, ordered: false }),
    ).resolves.toMatchObject({
      granted: false,
    });
    await expect(
      acquire(reader(), { waiter: waiterOf('b', 'shared'), waited: 2_000, ordered: false }),
    ).resolves.toMatchObject({ granted: true });
  });

  test('the mark of a waiter excludes readers even from a free lock', async () => {
    const lease = reader();
    await granted(lease);
    await holdBack(waiting);
    await release(lease);
    await redis.del('lock:{k}');
    await expect(refusal(reader(), { waiter: waiterOf('b', 'shared') })).resolves.toMatchObject({
      owner: 'host:a',
    });
    await expect(redis.keys('*')).resolves.toEqual(['lock:{k}:w']);
  });

  test('the mark of a waiter does not exclude callers in the same mode (exclusive or shared)', async () => {
    await holdBack(waiterOf('a', 'shared'));
    await granted(reader());
    await letPass(waiterOf('a', 'shared'));
    await holdBack(waiting);
    await redis.del('lock:{k}', 'lock:{k}:h', 'lock:{k}:s');
    await expect(granted(writer())).resolves.toBeGreaterThan(0);
  });

  test('the mark of a waiter lapses soon unless the waiter renews it', async () => {
    await granted(reader());
    // The mark lapses soon, and this process could stall between two commands. So they are sent together.
    const [, left, { remaining }] = await Promise.all([
      setMark(waiting),
      redis.pttl('lock:{k}:w'),
      refusal(reader()),
    ]);
    for (const time of [left, remaining]) {
      expect(time).toBeGreaterThan(0);
      expect(time).toBeLessThanOrEqual(MARK_MS);
    }
    await until(async () => (await acquire(reader())).granted);
  });

  test('the mark belongs to the waiter that came first, and only that waiter can remove the mark', async () => {
    const [early, late] = [waiterOf('a', 'exclusive'), waiterOf('b', 'exclusive')];
    await holdBack(late, 10);
    await holdBack(early, 60_000);
    await holdBack(late, 10);
    const mark = (await redis.get('lock:{k}:w'))!;
    expect(mark.slice(14)).toBe(waiterName(early));
    expect(Date.now() - Number(mark.slice(0, 13))).toBeGreaterThanOrEqual(60_000_000);
    await letPass(late);
    await expect(redis.exists('lock:{k}:w')).resolves.toBe(1);
    await letPass(early);
    await expect(redis.exists('lock:{k}:w')).resolves.toBe(0);
  });

  test('the mark of a waiting writer lets the writer acquire after the earlier readers, in spite of a stream of new readers', async () => {
    let holding = [reader(), reader()];
    await ask(holding);
    await refusal(writer(), { waiter: waiting });
    await holdBack(waiting);
    for (let round = 0; round < 5; round++) {
      await refusal(reader());
      await holdBack(waiting, round);
    }
    await releaseAll(holding);
    await expect(granted(writer(), { waiter: waiting, waited: 100 })).resolves.toBeGreaterThan(0);
    // Without the mark, reader after reader acquires the lock, and the writer never acquires it.
    await redis.flushall();
    holding = [reader()];
    await ask(holding);
    for (let round = 0; round < 5; round++) {
      const next = reader();
      await granted(next);
      await releaseAll(holding);
      await refusal(writer());
      holding = [next];
    }
  });

  test('the mark of a waiter is neither set nor removed if the key for the mark contains a foreign value (S19)', async () => {
    await redis.set('lock:{k}:w', 'somebody');
    await expect(holdBack(waiting)).rejects.toThrow(FOREIGN);
    await letPass(waiting);
    await expect(redis.get('lock:{k}:w')).resolves.toBe('somebody');
  });
});

describe('the queue of a key with readers', () => {
  function listener(letter: string, mode: LockMode, ...keys: readonly string[]): Promise<Listener> {
    return listen(waiterOf(letter, mode, ...keys));
  }

  async function listeners(modes: readonly LockMode[]): Promise<Listener[]> {
    return Promise.all(modes.map((mode, index) => listener(String.fromCharCode(97 + index), mode)));
  }

  /** For each listener, the delays in its messages since the last call, in milliseconds. */
  async function delaysOf(all: readonly Listener[]): Promise<number[][]> {
    return (await toldTo(all)).map((told) => told.map(Number.parseFloat));
  }

  function leaseOf({ waiter }: Listener): Lease {
    return reader(waiter.keys, { kind: waiter.mode === 'shared' ? SHARED : EXCLUSIVE });
  }

  /** Lets the listeners ask in the order of `all`. Each of them is refused, and joins the queue. */
  async function lineUp(all: readonly Listener[]): Promise<void> {
    for (const [index, each] of all.entries())
      await refusal(leaseOf(each), { waiter: each.waiter, waited: 900 - index * 100 });
  }

  function stop(all: readonly Listener[]): void {
    for (const each of all) each.stop();
  }

  test('the release of a writer notifies adjacent readers together, and tells the next two waiters (stand-bys) to ask a little later', async () => {
    const all = await listeners(['shared', 'shared', 'shared', 'exclusive', 'shared', 'shared']);
    const holder = writer();
    await granted(holder);
    await lineUp(all);
    await expect(release(holder)).resolves.toBe(5);
    expect(await delaysOf(all)).toEqual([[0], [0], [0], [200], [200], []]);
    // Each of the three readers is granted, in any order. The reader behind the writer is refused, and so is a newcomer.
    for (const index of [1, 2, 0])
      await granted(leaseOf(all[index]!), { waiter: all[index]!.waiter, waited: 700 });
    await refusal(leaseOf(all[4]!), { waiter: all[4]!.waiter, waited: 600 });
    await refusal(reader(), { ordered: true });
    stop(all);
  });

  test('the queue drops waiting readers of dead processes, and notifies the other waiters', async () => {
    const all = await listeners(['shared', 'shared', 'exclusive']);
    const holder = writer();
    await granted(holder);
    await lineUp(all);
    all[0]!.stop();
    await until(async () => (await redis.publish(all[0]!.channel, '')) === 0);
    await release(holder);
    expect(await delaysOf(all.slice(1))).toEqual([[0], [200]]);
    stop(all);
  });

  test('if the first waiter is a writer, only that writer is told to ask at once, and readers behind the writer are refused', async () => {
    const all = await listeners(['exclusive', 'shared', 'shared', 'shared']);
    const holder = writer();
    await granted(holder);
    await lineUp(all);
    // A turn is short, and this process could stall between two commands. So they are sent together.
    const [told, inTheWay] = await Promise.all([
      release(holder),
      refusal(leaseOf(all[1]!), { waiter: all[1]!.waiter, waited: 800 }),
    ]);
    expect(told).toBe(3);
    expect(inTheWay).toMatchObject({ owner: 'host:a' });
    expect(await delaysOf(all)).toEqual([[0], [200], [200], []]);
    await granted(leaseOf(all[0]!), { waiter: all[0]!.waiter, waited: 900 });
    stop(all);
  });

  test('a waiting writer excludes new readers as soon as the reader in front of the writer acquires', async () => {
    const all = await listeners(['shared', 'exclusive']);
    const holder = writer();
    await granted(holder);
    await lineUp(all);
    await release(holder);
    const [first, second] = all as [Listener, Listener];
    const lease = leaseOf(first);
    await granted(lease, { waiter: first.waiter, waited: 950 });
    await lengthenMarks();
    // The writer has not asked since the reader acquired, and so has set no mark itself.
    await expect(refusal(reader(), { ordered: true })).resolves.toMatchObject({ owner: 'host:b' });
    await expect(
      granted(reader(), { waiter: waiterOf('f', 'shared'), waited: 1_000 }),
    ).resolves.toBeGreaterThan(0);
    stop([first, second]);
  });

  test('a waiting writer excludes new readers even in the command that grants the reader in front of the writer', async () => {
    const all = await listeners(['shared', 'exclusive']);
    const holder = writer();
    await granted(holder);
    await lineUp(all);
    await release(holder);
    const [first] = all as [Listener, Listener];
    const newcomers = [reader(), reader('other')];
    const replies = await ask([leaseOf(first), ...newcomers], {
      waiter: first.waiter,
      waited: 950,
      newcomers,
    });
    expect(replies).toMatchObject([{ granted: true }, { holder: { owner: 'host:b' } }, { granted: true }]);
    stop(all);
  });

  test('new readers are admitted as soon as the writer that waited in front of them has released', async () => {
    const all = await listeners(['shared', 'exclusive']);
    const [first, second] = all as [Listener, Listener];
    const holder = writer();
    await granted(holder);
    await lineUp(all);
    await release(holder);
    const reading = leaseOf(first);
    await granted(reading, { waiter: first.waiter, waited: 950 });
    await release(reading);
    const writing = leaseOf(second);
    await granted(writing, { waiter: second.waiter, waited: 950 });
    await release(writing);
    // The writer has had its turn, so it no longer makes readers wait.
    await expect(granted(reader(), { ordered: true })).resolves.toBeGreaterThan(0);
    stop(all);
  });

  test('new readers are admitted soon after a waiting writer has disappeared', async () => {
    const all = await listeners(['shared', 'exclusive']);
    const [first, second] = all as [Listener, Listener];
    const holder = writer();
    await granted(holder);
    await lineUp(all);
    await release(holder);
    const later = waiterOf('f', 'shared');
    // The mark lapses soon, and this process could stall between two commands. So they are sent together.
    const [, inTheWay] = await Promise.all([
      granted(leaseOf(first), { waiter: first.waiter, waited: 950 }),
      refusal(reader(), { waiter: later, waited: 0 }),
    ]);
    expect(inTheWay).toMatchObject({ owner: 'host:b' });
    // The writer never asks again, and the reader holds the lock for long.
    second.stop();
    // The queue itself expires only after a minute without a request.
    await until(async () => (await acquire(reader(), { waiter: later, waited: 0 })).granted, 30_000);
    stop([first]);
  });

  test('a new reader is granted at once when only readers wait', async () => {
    const all = await listeners(['shared']);
    const holder = writer();
    await granted(holder);
    await lineUp(all);
    await release(holder);
    await expect(granted(reader(), { ordered: true })).resolves.toBeGreaterThan(0);
    stop(all);
  });

  test('the first waiter gets a turn after the holder has lapsed, and leaves the queue if it misses that turn', async () => {
    const all = await listeners(['exclusive', 'shared']);
    await granted(writer());
    await lineUp(all);
    await redis.pexpire('lock:{k}', LINGER_MS);
    const second = all[1]!;
    await expect(refusal(leaseOf(second), { waiter: second.waiter, waited: 800 })).resolves.toMatchObject({
      owner: 'host:a',
    });
    expect(await delaysOf(all)).toEqual([[0], [200]]);
    await until(async () => (await acquire(leaseOf(second), { waiter: second.waiter, waited: 800 })).granted);
    await expect(redis.keys('*:q')).resolves.toEqual([]);
    expect(await recordOf()).toMatch(/^S-/);
    stop(all);
  });

  test('a waiting writer is notified when the last reader has released, and not before', async () => {
    const all = await listeners(['exclusive']);
    const [one, other] = [reader(), reader()];
    await ask([one, other]);
    await lineUp(all);
    await expect(release(one)).resolves.toBe(0);
    await expect(release(other, 30)).resolves.toBe(1);
    expect(await delaysOf(all)).toEqual([[30]]);
    stop(all);
  });

  test('waiting readers are notified when the writer in front of them gives up', async () => {
    const all = await listeners(['exclusive', 'shared', 'shared']);
    await granted(reader());
    await refusal(leaseOf(all[0]!), { waiter: all[0]!.waiter, waited: 900 });
    await holdBack(all[0]!.waiter, 900);
    for (const each of all.slice(1)) await refusal(leaseOf(each), { waiter: each.waiter, waited: 100 });
    await leave(all[0]!.waiter);
    expect(await delaysOf(all)).toEqual([[], [0], [0]]);
    for (const each of all.slice(1)) await granted(leaseOf(each), { waiter: each.waiter, waited: 100 });
    expect(await redis.keys('*')).toHaveLength(3);
    stop(all);
  });

  test('no waiter is notified when a waiting reader leaves the queue while readers hold the lock', async () => {
    const all = await listeners(['shared', 'shared']);
    await granted(reader());
    await holdBack(waiterOf('f', 'exclusive'), 5_000);
    for (const each of all) await refusal(leaseOf(each), { waiter: each.waiter, waited: 100 });
    await leave(all[0]!.waiter);
    expect(await delaysOf(all)).toEqual([[], []]);
    stop(all);
  });

  test('a reader that waits for several keys is in the queue of only one of them at a time', async () => {
    const keys = ['a', 'b'];
    const waiter = waiterOf('a', 'shared', ...keys);
    await granted(writer('a'));
    await refusal(reader(keys), { waiter });
    const next = writer('b');
    await granted(next);
    await redis.del('lock:{a}');
    await refusal(reader(keys), { waiter });
    await expect(redis.keys('*:q')).resolves.toEqual([queueKey(PREFIX, 'b')]);
  });
});

describe('the scripts for a key with several holders', () => {
  test('the script `READ` returns all readers, sorted by the time at which they expire', async () => {
    const leases = [
      reader('k', { owner: 'b' }),
      reader('k', { ttl: SHORT, owner: 'a:1' }),
      reader('k', { ttl: 2 * TTL, owner: '' }),
    ];
    const token = await granted(leases[0]!);
    for (const lease of leases.slice(1)) await granted(lease);
    const dead = reader();
    await granted(dead);
    await lapse(dead);
    const state = (await read())!;
    expect(state).toEqual({
      mode: 'shared',
      holders: [leases[1]!, leases[0]!, leases[2]!].map(({ id, owner }) => ({
        id,
        owner,
        since: 1_700_000_000_000,
        fencingToken: token,
        mode: 'shared',
        remaining: expect.any(Number),
      })),
    });
    for (const [index, ttl] of [SHORT, TTL, 2 * TTL].entries())
      expectAbout(state.holders[index]!.remaining, ttl);
  });

  test.each(['h', 's'])(
    'the script `READ` fails on a value of another type in a key that ends in :%s, and still returns other locks (S19)',
    async (name) => {
      await ask([reader('a', { ttl: SHORT }), reader('b', { ttl: SHORT })]);
      const lease = reader(['a', 'b']);
      await granted(lease);
      await redis.del(`lock:{a}:${name}`);
      await redis.rpush(`lock:{a}:${name}`, 'not ours');
      const found = (await run(READ, packRead(['a', 'b'], PREFIX))) as unknown[];
      const [a, b] = found.map((each) => readPage(each).state);
      expect(a).toMatchObject({ message: expect.stringMatching(/^WRONGTYPE/) as unknown });
      expect(b).toMatchObject({ holders: [{}, { id: lease.id }] });
    },
  );

  test('the script `READ` returns permits with their slots, and `FORCE_RELEASE` ends the permits with the given ids', async () => {
    const [one, two] = ['a'.repeat(32), 'b'.repeat(32)] as const;
    const [ends, life] = [Date.now() + TTL, TTL + LINGER_MS];
    // The first and the last of three slots are taken.
    await redis.set(
      'lock:{k}',
      `P-0000000000000007:${two}:1700000000002:00020003+D:two:0000000000000004`,
      'PX',
      life,
    );
    await redis.zadd('lock:{k}:h', ends - 1_000, one, ends, two);
    await redis.hset('lock:{k}:s', one, '0000000000000005:0000:1700000000001:one');
    await redis.hset('lock:{k}:s', two, '0000000000000007:0002:1700000000002:two', 'e', ends + LINGER_MS);
    for (const key of ['lock:{k}:h', 'lock:{k}:s']) await redis.pexpire(key, life);
    const holder = { mode: 'permits', remaining: expect.any(Number) as unknown };
    const [first, second] = [
      { ...holder, id: one, owner: 'one', since: 1_700_000_000_001, fencingToken: 5, slot: 0 },
      { ...holder, id: two, owner: 'two', since: 1_700_000_000_002, fencingToken: 7, slot: 2 },
    ];
    await expect(read()).resolves.toEqual({ mode: 'permits', permits: 3, holders: [first, second] });
    for (const lease of [writer(), reader()]) await expect(refusal(lease)).resolves.toEqual(second);
    await expect(forceRelease('k', 'x'.repeat(32), two)).resolves.toEqual([2]);
    await expect(read()).resolves.toEqual({ mode: 'permits', permits: 3, holders: [first] });
    expect(await recordOf()).toMatch(/\+@:one:0000000000000004$/);
    await withoutMemory(async () => {
      await expect(forceRelease('k', two, one, one)).resolves.toEqual([2]);
    });
    expect(await recordOf()).toMatch(/^F-0000000000000007/);
    await expect(redis.keys('*')).resolves.toEqual(['lock:{k}']);
    expectAbout(await redis.pttl('lock:{k}'), LINGER_MS);
  });

  test('the script `READ` returns a single permit from the record of the lock, and `FORCE_RELEASE` ends that permit', async () => {
    const id = 'a'.repeat(32);
    const record = `P-0000000000000007:${id}:1700000000002:000100021:one:0000000000000004`;
    await redis.set('lock:{k}', record, 'PX', TTL + LINGER_MS);
    const holder = { id, owner: 'one', since: 1_700_000_000_002, fencingToken: 7, mode: 'permits', slot: 1 };
    await expect(read()).resolves.toMatchObject({ mode: 'permits', permits: 2, holders: [holder] });
    await expect(forceRelease('k', 'b'.repeat(32))).resolves.toEqual([]);
    await expect(forceRelease('k', id)).resolves.toEqual([1]);
    expect(await recordOf()).toMatch(/^F/);
  });

  test.each([
    ['a slot is free', '@', 0, true],
    ['the holder of a slot has lapsed', 'F', -1_000, true],
    ['all slots are held', 'F', TTL, false],
  ])(
    'the script `LEAVE` notifies the next waiter for a permit only if a slot is available (case: %s)',
    async (_when, map, ends, isTold) => {
      const [front, next] = [waiterOf('a', 'permits'), waiterOf('b', 'permits')];
      const record = `Pw0000000000000007:${'a'.repeat(32)}:1700000000002:00000003+${map}:one:0000000000000004`;
      await redis.set('lock:{k}', record, 'PX', TTL + LINGER_MS);
      await redis.zadd('lock:{k}:h', Date.now() + (ends || TTL), 'a'.repeat(32));
      await redis.zadd('lock:{k}:q', 1, waiterName(front), 2, waiterName(next));
      const client = server.client();
      const told: string[] = [];
      await client.subscribe(`${BASE}${next.process}`);
      client.on('message', (_channel, text) => told.push(text));
      await leave(front);
      await redis.publish(`${BASE}${next.process}`, 'that is all');
      await until(() => told.includes('that is all'));
      expect(told.slice(0, -1)).toEqual(isTold ? [`0 - 1:${next.owner}`] : []);
      client.disconnect();
    },
  );

  test('the script `FORCE_RELEASE` ends only the readers with the given ids', async () => {
    const [one, two, three] = [reader(), reader(), reader()];
    await ask([one, two, three]);
    await expect(forceRelease('k', 'x'.repeat(32), three.id, one.id)).resolves.toEqual([2, 3]);
    await expect(idsOf()).resolves.toEqual([two.id]);
    await expect(extend(TTL, one, two)).resolves.toBe('01');
    await expect(forceRelease('k', one.id)).resolves.toEqual([]);
    await withoutMemory(async () => {
      await expect(forceRelease('k', two.id)).resolves.toEqual([1]);
    });
    await expect(redis.keys('*')).resolves.toEqual(['lock:{k}']);
    expect(await recordOf()).toMatch(/^F/);
  });
});

test('the scripts for readers fail with READONLY on a replica', async () => {
  const lease = reader();
  await granted(lease);
  await redis.replicaof('127.0.0.1', 1);
  try {
    await expect(ask([reader('a'), reader('b')])).rejects.toThrow(/READONLY/);
    await expect(releaseAll([lease, reader('b')])).rejects.toThrow(/READONLY/);
  } finally {
    await redis.replicaof('NO', 'ONE');
  }
});

test('all Redis keys that readers leave expire within `LINGER_MS` after the last release', async () => {
  const readers = [reader(['a', 'b'], { ttl: 10 * TTL }), reader('b'), reader('b', { ttl: 1_000 })];
  await granted(readers[0]!);
  await ask(readers.slice(1, 2));
  await ask(readers.slice(2));
  await extend(20 * TTL, readers[1]!);
  for (const lease of readers) await release(lease);
  const last = writer('b');
  await granted(last);
  await release(last);
  await expect(redis.keys('*')).resolves.toHaveLength(2);
  for (const key of await redis.keys('*')) expectAbout(await redis.pttl(key), LINGER_MS);
});
