import { describe, expect, test } from '@jest/globals';
import { setTimeout as delay } from 'node:timers/promises';
import { NoTimeError } from '../../../lib/core/errors.js';
import { LEAD_MS, tokenAt } from '../../../lib/core/fencing-token.js';
import { Lease } from '../../../lib/core/lease.js';
import type { AcquireRequest } from '../../../lib/core/ports.js';
import { LINGER_MS } from '../../../lib/core/store-times.js';
import type { Tick } from '../../../lib/core/tick.js';
import type { WaiterId } from '../../../lib/core/waiter-id.js';
import { queueKey, recordKey, tickKey } from '../../../lib/stores/redis/lock-key.js';
import { parseRecord, waiterName } from '../../../lib/stores/redis/record.js';
import { ACQUIRE, packAcquire } from '../../../lib/stores/redis/scripts/acquire.js';
import {
  acquireAnswers,
  readAcquireReply,
  tooYoungFor,
} from '../../../lib/stores/redis/scripts/acquire-answer.js';
import { BIRTH } from '../../../lib/stores/redis/scripts/birth.js';
import { EXTEND, packExtend } from '../../../lib/stores/redis/scripts/extend.js';
import { FORCE_RELEASE, packForceRelease } from '../../../lib/stores/redis/scripts/force-release.js';
import { LEAVE, packLeave } from '../../../lib/stores/redis/scripts/leave.js';
import { digitsOf } from '../../../lib/stores/redis/scripts/lua.js';
import { packRaise, RAISE } from '../../../lib/stores/redis/scripts/raise.js';
import { packRead, READ } from '../../../lib/stores/redis/scripts/read.js';
import { WAITING } from '../../../lib/stores/redis/scripts/waiting.js';
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
  type Listener,
  MARKER,
  onOwnServer,
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
  readonly tick?: Tick;
}

function leaseFor(
  keys: string | readonly string[],
  { owner = 'me', ttl = TTL, tick }: LeaseTerms = {},
): Lease {
  return new Lease(typeof keys === 'string' ? [keys] : keys, owner, ttl, tick);
}

/** Runs ACQUIRE once for these requests. */
function acquireAll(requests: readonly AcquireRequest[], terms: Terms = {}): Promise<Answer[]> {
  return answersTo(requests, ACQUIRE, packAcquire(requests, commandFor(requests, terms)));
}

/** The answer of ACQUIRE for this lease alone. */
async function acquire(lease: Lease, terms?: Terms): Promise<number | readonly (number | string)[]> {
  const [answer] = await acquireAll([requestFor(lease, terms)], terms);
  if (answer instanceof Error) throw answer;
  return answer as number | readonly (number | string)[];
}

/** Acquires a lease whose keys are free and have no waiters; returns the fencing token. */
async function granted(lease: Lease, terms?: Terms): Promise<number> {
  const answer = await acquire(lease, terms);
  expect(answer).toEqual(expect.any(Number));
  return answer as number;
}

async function extend(ttl: number, ...leases: readonly Lease[]): Promise<unknown> {
  return run(EXTEND, packExtend(leases, ttl, PREFIX));
}

function raise(lease: Lease, token: number, marker?: string): Promise<unknown> {
  return run(RAISE, packRaise(lease, token, PREFIX, marker));
}

async function releaseAll(leases: readonly Lease[], pause = 0): Promise<Answer[]> {
  const requests = leases.map((lease) => ({ lease, pause }));
  const reply = await run(RELEASE, packRelease(requests, PREFIX, BASE));
  return leases.map((_, index) => releaseAnswer(reply, index) as Answer);
}

/** Releases this lease alone; returns the number of notified waiters. */
async function release(lease: Lease, pause?: number): Promise<unknown> {
  const [answer] = await releaseAll([lease], pause);
  if (answer instanceof Error) throw answer;
  return answer;
}

function forceRelease(key: string, ...ids: readonly string[]): Promise<unknown> {
  return run(FORCE_RELEASE, packForceRelease(key, ids, PREFIX, BASE));
}

function read(...keys: readonly string[]): Promise<unknown> {
  return run(READ, packRead(keys, PREFIX));
}

function leave(waiter: WaiterId): Promise<unknown> {
  return run(LEAVE, packLeave(waiter, PREFIX, BASE));
}

/** Milliseconds until a record expires. */
function lifeOf(key: string): Promise<number> {
  return redis.pttl(recordKey(PREFIX, key));
}

interface Written {
  readonly state?: 'H' | 'F' | 'K';
  readonly id?: string;
  readonly token?: number;
  /** Milliseconds until the record expires; `Infinity` for never. */
  readonly life?: number;
}

const THEIRS = 'e'.repeat(32);

/** Writes a record by hand. */
async function write(
  key: string,
  { state = 'H', id = THEIRS, token = 1, life = TTL + LINGER_MS }: Written = {},
): Promise<void> {
  const record = `${state}-${String(token).padStart(16, '0')}:${id}:1700000000000:them`;
  await (life === Infinity
    ? redis.set(recordKey(PREFIX, key), record)
    : redis.set(recordKey(PREFIX, key), record, 'PX', life));
}

/** Makes records look as if their ttl had passed: they expire within `LINGER_MS`. */
async function lapse(...keys: readonly string[]): Promise<void> {
  for (const key of keys) await expect(redis.pexpire(recordKey(PREFIX, key), LINGER_MS)).resolves.toBe(1);
}

/** Expects a record to expire in `life` milliseconds, or a little sooner. */
async function expectLife(key: string, life: number): Promise<void> {
  expectAbout(await lifeOf(key), life);
}

/** The fields of a node's marker. */
async function readMarker(): Promise<{ readonly born: number; readonly high: number }> {
  const marker = (await redis.get(MARKER))!;
  expect(marker).toMatch(/^\d{16}:\d{16}$/);
  return { born: Number(marker.slice(0, 16)), high: Number(marker.slice(17)) };
}

async function writeMarker(born: number, high = 0): Promise<void> {
  await redis.set(MARKER, [born, high].map((number) => String(number).padStart(16, '0')).join(':'));
}

test.each(Object.entries({ ACQUIRE, BIRTH, RAISE, EXTEND, RELEASE, LEAVE, READ, WAITING, FORCE_RELEASE }))(
  'the hash of the script %s equals the hash that Redis computes',
  async (_name, { lua, sha }) => {
    await expect(redis.script('LOAD', lua)).resolves.toBe(sha);
  },
);

describe('the ACQUIRE script', () => {
  test('`ACQUIRE` stores one record that expires after the ttl plus LINGER_MS', async () => {
    const lease = leaseFor('k', { owner: 'host:1' });
    const request = requestFor(lease);
    const [token] = await acquireAll([request]);
    expect(parseRecord((await recordOf('k'))!)).toEqual({
      fencingToken: token,
      id: lease.id,
      since: request.since,
      owner: 'host:1',
    });
    await expect(stateOf('k')).resolves.toBe('H-');
    await expectLife('k', TTL + LINGER_MS);
    await expect(redis.keys('*')).resolves.toEqual(['lock:{k}']);
  });

  test('`ACQUIRE` stores nothing if a key is held, and returns the key, its holder and its remaining ttl', async () => {
    const theirs = leaseFor('b', { owner: 'them' });
    await granted(theirs);
    const answer = await acquire(leaseFor(['a', 'b', 'c']));
    expect(answer).toEqual([2, await recordOf('b'), expect.any(Number)]);
    const reply = readAcquireReply(answer);
    expect(reply).toMatchObject({ granted: false, holder: { id: theirs.id, owner: 'them' } });
    expect(Number((answer as number[])[2])).toBeLessThanOrEqual(TTL);
    expect(Number((answer as number[])[2])).toBeGreaterThan(TTL - PATIENCE);
    await expect(redis.keys('*')).resolves.toEqual(['lock:{b}']);
  });

  test.each<[string, Written, boolean]>([
    ['is held, and expires later than LINGER_MS from now', { life: LINGER_MS + PATIENCE }, false],
    ['has no expiry', { life: Infinity }, false],
    [
      'is kept for minHold, and expires later than LINGER_MS from now',
      { state: 'K', life: LINGER_MS + PATIENCE },
      false,
    ],
    ['was held, and expires within LINGER_MS', { life: LINGER_MS }, true],
    ['was kept for minHold, and expires within LINGER_MS', { state: 'K', life: LINGER_MS }, true],
    ['is free, however late it expires', { state: 'F', life: LINGER_MS + PATIENCE }, true],
    ['is free and has no expiry', { state: 'F', life: Infinity }, true],
  ])(
    '`ACQUIRE` grants a key only if its record is free or has lapsed (here: a record that %s)',
    async (_name, record, isTaken) => {
      await write('k', record);
      const reply = readAcquireReply(await acquire(leaseFor('k')));
      expect(reply).toMatchObject({ granted: isTaken });
      if (isTaken) await expectLife('k', TTL + LINGER_MS);
    },
  );

  test('`ACQUIRE` reports a record without an expiry as held for ever', async () => {
    await write('k', { life: Infinity });
    expect(readAcquireReply(await acquire(leaseFor('k')))).toMatchObject({
      granted: false,
      holder: {
        id: THEIRS,
        owner: 'them',
        remaining: Infinity,
        since: 1_700_000_000_000,
        fencingToken: 1,
        mode: 'exclusive',
      },
    });
  });

  test('`ACQUIRE` grants the same token again when it runs twice for one lease, because a client may resend the command', async () => {
    const lease = leaseFor(['a', 'b']);
    const token = await granted(lease);
    const records = await redis.mget('lock:{a}', 'lock:{b}');
    await expect(acquire(lease)).resolves.toBe(token);
    await expect(acquire(lease, { deadline: -1_000 })).resolves.toBe(token);
    await expect(redis.mget('lock:{a}', 'lock:{b}')).resolves.toEqual(records);
  });

  test('`ACQUIRE` returns the raised token when it runs again for a lease whose token was raised', async () => {
    const lease = leaseFor('k');
    const token = await granted(lease);
    await raise(lease, token + 7);
    await expect(acquire(lease)).resolves.toBe(token + 7);
  });

  test('`ACQUIRE` fails when it runs again for a lease that was released, is kept for minHold or has lapsed', async () => {
    const [released, kept, lapsed] = [leaseFor('released'), leaseFor('kept'), leaseFor('lapsed')];
    for (const lease of [released, kept, lapsed]) await granted(lease);
    kept.acquired(performance.now(), TTL);
    await releaseAll([released, kept]);
    await lapse('lapsed');
    for (const lease of [released, kept, lapsed]) {
      const record = await recordOf(lease.keys[0]!);
      await expect(acquire(lease)).rejects.toThrow(ENDED);
      await expect(recordOf(lease.keys[0]!)).resolves.toBe(record);
    }
    await expectLife('lapsed', LINGER_MS);
    await expect(acquire(leaseFor('released'))).resolves.toEqual(expect.any(Number));
  });

  test('`ACQUIRE` does not grant a lease again when one of its keys is gone', async () => {
    const lease = leaseFor(['a', 'b']);
    await granted(lease);
    await redis.del('lock:{b}');
    await expect(acquire(lease)).rejects.toThrow('some of its keys are gone');
    await expect(recordOf('b')).resolves.toBeNull();
    await granted(leaseFor('b'));
    await expect(acquire(lease)).rejects.toThrow('some of its keys are gone');
  });

  test.each([
    ['short', 'somebody'],
    ['empty', ''],
    ['long', JSON.stringify({ locked: true, by: 'x'.repeat(100) })],
    ['made of digits', '1'.repeat(80)],
    ['like a record without an owner, but cut short', `H-${'1'.repeat(16)}:${THEIRS}:170000000000`],
    ['like a free record, but cut short', `F-${'1'.repeat(16)}:${THEIRS}:170000000000`],
    ['like a free record, but without a token', `F-${'x'.repeat(16)}:${THEIRS}:1700000000000:me`],
    ['like a free record, but without a colon behind the token', `F-${'1'.repeat(80)}`],
  ])(
    '`ACQUIRE` fails on a value that is not a lock (%s), and keeps that value (S19)',
    async (_name, value) => {
      // ACQUIRE would overwrite a record with this expiry, because a record that expires within `LINGER_MS` has lapsed.
      await redis.set('lock:{b}', value, 'PX', LINGER_MS);
      for (const keys of ['b', ['a', 'b']]) await expect(acquire(leaseFor(keys))).rejects.toThrow(FOREIGN);
      await expect(redis.keys('*')).resolves.toEqual(['lock:{b}']);
      await expect(recordOf('b')).resolves.toBe(value);
    },
  );

  test('`ACQUIRE` fails with WRONGTYPE on a key of another type (S19)', async () => {
    await redis.rpush('lock:{b}', 'not a lock');
    for (const keys of ['b', ['a', 'b']]) await expect(acquire(leaseFor(keys))).rejects.toThrow('WRONGTYPE');
    await expect(redis.keys('*')).resolves.toEqual(['lock:{b}']);
  });

  test('`ACQUIRE` stores nothing when Redis is out of memory (S9)', async () => {
    await withoutMemory(async () => {
      await expect(acquire(leaseFor(['a', 'b']))).rejects.toThrow('OOM');
      await expect(acquire(leaseFor('a'), { marked: true })).rejects.toThrow('OOM');
      await expect(redis.dbsize()).resolves.toBe(0);
    });
  });

  test('`ACQUIRE` does nothing when it arrives after its deadline on the server clock (S16)', async () => {
    const answer = await acquire(leaseFor('k'), { deadline: -300 });
    expect(answer).toEqual([-1, expect.any(Number)]);
    expect((answer as number[])[1]).toBeGreaterThanOrEqual(299);
    expect(readAcquireReply(answer)).toBeInstanceOf(NoTimeError);
    await expect(redis.dbsize()).resolves.toBe(0);
    await granted(leaseFor('k'), { deadline: PATIENCE });
  });

  test('`ACQUIRE` refuses requests while the data is younger than the restart guard, and returns the remaining time (S12)', async () => {
    await redis.config('RESETSTAT');
    const wait = tooYoungFor(await acquire(leaseFor('k'), { guard: TTL }))!;
    expect(wait).toBeGreaterThan(TTL - PATIENCE);
    expect(wait).toBeLessThanOrEqual(TTL);
    await expect(redis.keys('*')).resolves.toEqual([MARKER]);
    const { born } = await readMarker();
    await writeMarker(born - TTL - 1);
    await granted(leaseFor('k'), { guard: TTL });
    await expect(readMarker()).resolves.toEqual({ born: born - TTL - 1, high: 0 });
  });

  test('`ACQUIRE` names the holder of a held key, and grants a repeated request, while the data is younger than the restart guard', async () => {
    const lease = leaseFor('k');
    const token = await granted(lease);
    await expect(acquire(lease, { guard: TTL })).resolves.toBe(token);
    await expect(acquire(leaseFor('k'), { guard: TTL })).resolves.toEqual([
      1,
      await recordOf('k'),
      expect.any(Number),
    ]);
  });

  test("`ACQUIRE` restarts the restart guard if the time in the node's marker is in the future (S12)", async () => {
    const high = tokenAhead();
    await writeMarker(Date.now() + 3_600_000, high);
    const wait = tooYoungFor(await acquire(leaseFor('k'), { guard: TTL }))!;
    expect(wait).toBeLessThanOrEqual(TTL);
    const { born } = await readMarker();
    expect(Math.abs(born - Date.now())).toBeLessThan(PATIENCE);
    expect((await readMarker()).high).toBe(high);
  });
});

describe('the fencing token that ACQUIRE gives', () => {
  test('the fencing token follows the clock when no token is stored, so that tokens increase after a loss of data', async () => {
    const before = Date.now();
    const token = await granted(leaseFor('k'));
    expect(token).toBeGreaterThanOrEqual(tokenAt(before - 1));
    expect(token).toBeLessThanOrEqual(tokenAt(Date.now() + 1));
  });

  test.each<[string, Written]>([
    ['was released', { state: 'F', life: LINGER_MS }],
    ['has lapsed', { state: 'H', life: LINGER_MS }],
    ['was kept for minHold', { state: 'K', life: LINGER_MS }],
  ])(
    'the next fencing token of a key that %s is the last token plus one if the clock is behind the last token',
    async (_name, record) => {
      const last = tokenAhead();
      await write('k', { ...record, token: last });
      await expect(acquire(leaseFor('k'))).resolves.toBe(last + 1);
      await expect(tokenOf('k')).resolves.toBe(last + 1);
    },
  );

  test('the fencing token follows the clock when the clock is ahead of the last token', async () => {
    const last = tokenAhead(-3_600_000);
    await write('k', { state: 'F', token: last });
    expect(await granted(leaseFor('k'))).toBeGreaterThan(tokenAhead(-PATIENCE));
  });

  test('the fencing token of a lock is larger than the last token of each of its keys, and is stored at all these keys', async () => {
    const last = tokenAhead();
    await write('a', { state: 'F', token: last - 5 });
    await write('b', { state: 'F', token: last });
    await write('c', { state: 'F', token: last - 9 });
    await expect(acquire(leaseFor(['a', 'b', 'c', 'd']))).resolves.toBe(last + 1);
    for (const key of 'abcd') await expect(tokenOf(key)).resolves.toBe(last + 1);
  });

  test('the fencing token is the proposed token, but never behind the clock, and never more than LEAD_MS ahead of the clock', async () => {
    const soon = tokenAhead(LEAD_MS - 100);
    await expect(acquire(leaseFor('a'), { proposal: soon })).resolves.toBe(soon);
    const behind = await granted(leaseFor('b'), { proposal: 5 });
    expect(behind).toBeGreaterThanOrEqual(tokenAhead(-PATIENCE));
    expect(behind).toBeLessThanOrEqual(tokenAhead(1));
    const before = Date.now();
    const ahead = await granted(leaseFor('c'), { proposal: 2 ** 52 });
    expect(ahead).toBeGreaterThanOrEqual(tokenAt(before - 1 + LEAD_MS));
    expect(ahead).toBeLessThanOrEqual(tokenAt(Date.now() + 1 + LEAD_MS));
  });

  test('the fencing token is larger than the last token, even if a smaller token is proposed', async () => {
    const last = tokenAhead();
    await write('k', { state: 'F', token: last });
    await expect(acquire(leaseFor('k'), { proposal: last - 1_000 })).resolves.toBe(last + 1);
  });

  test('the fencing token is stored with 16 digits, not in the default format of Lua', async () => {
    await write('k', { state: 'F', token: 9007199254740000 });
    await expect(acquire(leaseFor('k'))).resolves.toBe(9007199254740001);
    expect((await recordOf('k'))!.slice(2, 19)).toBe('9007199254740001:');
  });

  test('the fencing token never exceeds Number.MAX_SAFE_INTEGER', async () => {
    await write('k', { state: 'F', token: Number.MAX_SAFE_INTEGER });
    const record = await recordOf('k');
    await expect(acquire(leaseFor(['a', 'k']), { marked: true })).rejects.toThrow(
      'fencing token out of range',
    );
    await expect(recordOf('k')).resolves.toBe(record);
    await expect(recordOf('a')).resolves.toBeNull();
    expect((await readMarker()).high).toBe(0);
  });

  test("the fencing token of every key is larger than the token in the node's marker", async () => {
    const high = tokenAhead();
    await writeMarker(Date.now() - TTL, high);
    await expect(acquire(leaseFor('a'), { marked: true })).resolves.toBe(high + 1);
    await write('b', { state: 'F', token: high + 50 });
    await expect(acquire(leaseFor('b'), { marked: true })).resolves.toBe(high + 51);
    await write('c', { state: 'F', token: 5 });
    expect(await granted(leaseFor('c'), { marked: true })).toBeGreaterThan(high);
  });

  test("a fencing token more than LEAD_MS ahead of the clock raises the token in the node's marker", async () => {
    const born = Date.now() - TTL;
    const last = tokenAhead();
    await writeMarker(born);
    await write('a', { state: 'F', token: last });
    await expect(acquire(leaseFor('a'), { marked: true })).resolves.toBe(last + 1);
    await expect(readMarker()).resolves.toEqual({ born, high: last + 1 });
    await redis.del('lock:{a}');
    await expect(acquire(leaseFor('a'), { marked: true })).resolves.toBe(last + 2);
    await expect(readMarker()).resolves.toEqual({ born, high: last + 2 });
  });

  test("a fencing token less than LEAD_MS ahead of the clock does not change the node's marker", async () => {
    const born = Date.now() - TTL;
    await writeMarker(born, 5);
    const soon = tokenAhead(LEAD_MS - 100);
    await expect(acquire(leaseFor('k'), { marked: true, proposal: soon })).resolves.toBe(soon);
    await expect(readMarker()).resolves.toEqual({ born, high: 5 });
  });

  test("no lease of a command gets a fencing token when Redis has no memory to raise the node's marker", async () => {
    const last = tokenAhead();
    await writeMarker(Date.now() - TTL);
    await write('a', { state: 'F', token: last });
    await write('b', { state: 'F', token: last - 5 });
    const before = await redis.mget(MARKER, 'lock:{a}', 'lock:{b}');
    await withoutMemory(async () => {
      const requests = ['a', 'b'].map((key) => requestFor(leaseFor(key)));
      const failed = expect.objectContaining({ message: expect.stringContaining('OOM') as unknown });
      await expect(acquireAll(requests, { marked: true })).resolves.toEqual([failed, failed]);
      await expect(redis.mget(MARKER, 'lock:{a}', 'lock:{b}')).resolves.toEqual(before);
    });
  });

  test("a fencing token does not exceed the token in the node's marker even if the marker could not be raised for an earlier lease of the command", async () => {
    const last = tokenAhead();
    await writeMarker(Date.now() - TTL);
    const waiter = waiterOf('a', 'waited');
    await write('waited');
    await write('a', { state: 'F', token: last });
    await write('b', { state: 'F', token: last - 5 });
    await withoutMemory(async () => {
      // Redis accepts all further writes of a script after its first write. Here the first write stores the waiter.
      const requests = [leaseFor('a'), leaseFor('waited'), leaseFor('b')].map((lease) =>
        requestFor(lease, lease.keys[0] === 'waited' ? { waiter, waited: 5 } : {}),
      );
      const answers = await acquireAll(requests, { marked: true });
      expect(answers[0]).toMatchObject({ message: expect.stringContaining('OOM') as unknown });
      const { high } = await readMarker();
      const tokens = await Promise.all(['a', 'b'].map(tokenOf));
      // The record of a key that was not acquired keeps its token.
      expect(tokens[0]).toBe(last);
      expect(tokens[1]).toBeLessThanOrEqual(Math.max(high, last - 5));
    });
  });
});

describe('the ACQUIRE script for a tick of a schedule', () => {
  const AT = 1_700_000_000_000;

  function ticking(at: number, keys: string | readonly string[] = 'k'): Lease {
    return leaseFor(keys, { tick: { schedule: 'nightly', at, life: TTL, from: 'release' } });
  }

  function ran(at: number): Promise<unknown> {
    const key = tickKey(PREFIX, ['k'], { schedule: 'nightly' });
    return redis.set(key, `${String(at).padStart(16, '0')}:host:1`, 'PX', TTL);
  }

  test('`ACQUIRE` refuses a tick of an interval, which has no planned time, while any tick of the schedule is remembered', async () => {
    await granted(ticking(0, 'other'));
    await ran(0);
    await expect(acquire(ticking(0))).resolves.toEqual([-3, '0000000000000000:host:1', expect.any(Number)]);
  });

  test('`ACQUIRE` fails for a lease if the Redis key for its last tick has another type, and grants the other leases of the command', async () => {
    await redis.rpush(tickKey(PREFIX, ['k'], { schedule: 'nightly' }), 'not a mark');
    const [first, refused, last] = await acquireAll(
      [ticking(AT, 'a'), ticking(AT), ticking(AT, 'b')].map((lease) => requestFor(lease)),
    );
    expect([first, last]).toEqual([expect.any(Number), expect.any(Number)]);
    expect(refused).toMatchObject({ message: expect.stringMatching(/^WRONGTYPE/) as unknown });
    await expect(recordOf('k')).resolves.toBeNull();
  });
});

describe('the BIRTH script', () => {
  /** The time in milliseconds from which the age of the node counts. */
  async function bornAt(): Promise<number> {
    const [micros, age] = (await run(BIRTH, [1, MARKER])) as [number, number];
    return micros / 1_000 - age;
  }

  test("`BIRTH` stores the node's marker only once, and returns the time of the server (S12, S16)", async () => {
    const [micros, age] = (await run(BIRTH, [1, MARKER])) as [number, number];
    expect(Math.abs(micros / 1_000 - Date.now())).toBeLessThan(PATIENCE);
    const born = Math.floor(micros / 1_000);
    expect(age).toBe(0);
    await expect(readMarker()).resolves.toEqual({ born, high: 0 });
    await delay(2);
    const [later, again] = (await run(BIRTH, [1, MARKER])) as [number, number];
    expect(later).toBeGreaterThan(micros);
    expect(again).toBe(Math.floor(later / 1_000 - born));
    await expect(readMarker()).resolves.toEqual({ born, high: 0 });
  });

  test('`BIRTH` keeps an existing marker and the token in it', async () => {
    await writeMarker(1_700_000_000_000, 77);
    await expect(bornAt()).resolves.toBeCloseTo(1_700_000_000_000, -1);
    await expect(readMarker()).resolves.toEqual({ born: 1_700_000_000_000, high: 77 });
  });

  test('`BIRTH` returns only the time of the server when the node has no marker', async () => {
    await expect(run(BIRTH, [0])).resolves.toEqual([expect.any(Number), -1, '-']);
    await expect(redis.dbsize()).resolves.toBe(0);
  });

  test('`BIRTH` finds an existing marker even when Redis is out of memory', async () => {
    await writeMarker(1_700_000_000_000);
    await withoutMemory(async () => {
      await expect(bornAt()).resolves.toBeCloseTo(1_700_000_000_000, -1);
    });
  });
});

describe('the RAISE script', () => {
  test('`RAISE` raises the token in all records of a lease, and changes nothing else', async () => {
    const lease = leaseFor(['a', 'b'], { owner: 'ünïcode' });
    const token = await granted(lease);
    const record = (await recordOf('a'))!;
    await expect(raise(lease, token + 5)).resolves.toBe(1);
    const raised = record.replace(String(token), String(token + 5));
    await expect(redis.mget('lock:{a}', 'lock:{b}')).resolves.toEqual([raised, raised]);
    await expectLife('a', TTL + LINGER_MS);
    // A request for the present token succeeds, too, because a client may send the command twice.
    await expect(raise(lease, token + 5)).resolves.toBe(1);
  });

  test('`RAISE` changes nothing when a record has a larger token, holds another lease or is missing', async () => {
    const lease = leaseFor(['a', 'b']);
    const token = await granted(lease);
    const unchanged = async (): Promise<void> => {
      const before = await redis.mget('lock:{a}', 'lock:{b}');
      await expect(raise(lease, token + 5)).resolves.toBe(0);
      await expect(redis.mget('lock:{a}', 'lock:{b}')).resolves.toEqual(before);
    };
    await write('b', { id: lease.id, token: token + 6 });
    await unchanged();
    await write('b', { token });
    await unchanged();
    await redis.set('lock:{b}', 'somebody');
    await unchanged();
    await redis.del('lock:{b}');
    await unchanged();
  });

  test.each<[string, Written]>([
    ['was released', { state: 'F', life: TTL + LINGER_MS }],
    ['is kept for minHold', { state: 'K', life: TTL + LINGER_MS }],
    ['has lapsed', { state: 'H', life: LINGER_MS }],
  ])('`RAISE` changes nothing when a record %s', async (_name, record) => {
    const lease = leaseFor(['a', 'b']);
    const token = await granted(lease);
    await write('b', { ...record, id: lease.id, token });
    await expect(raise(lease, token + 5)).resolves.toBe(0);
    await expect(tokenOf('a')).resolves.toBe(token);
    await expect(tokenOf('b')).resolves.toBe(token);
  });

  test('`RAISE` raises the token of a record without an expiry', async () => {
    const lease = leaseFor('k');
    const token = await granted(lease);
    await redis.persist('lock:{k}');
    await expect(raise(lease, token + 5)).resolves.toBe(1);
  });

  test("`RAISE` raises the token in the node's marker, and keeps the time in it, when the token is more than LEAD_MS ahead of the clock", async () => {
    const born = Date.now() - TTL;
    await writeMarker(born, 5);
    const lease = leaseFor(['a', 'b']);
    const token = await granted(lease, { marked: true });
    const near = tokenAhead(LEAD_MS - 500);
    await expect(raise(lease, near, MARKER)).resolves.toBe(1);
    await expect(readMarker()).resolves.toEqual({ born, high: 5 });
    const far = tokenAhead();
    await expect(raise(lease, far, MARKER)).resolves.toBe(1);
    await expect(readMarker()).resolves.toEqual({ born, high: far });
    await expect(tokenOf('a')).resolves.toBe(far);
    await expect(tokenOf('b')).resolves.toBe(far);
    expect(far).toBeGreaterThan(token);
  });

  test("`RAISE` never lowers the token in the node's marker", async () => {
    const born = Date.now() - TTL;
    const lease = leaseFor('k');
    await granted(lease);
    const [far, farther] = [tokenAhead(), tokenAhead() + 1_000];
    await writeMarker(born, farther);
    await expect(raise(lease, far, MARKER)).resolves.toBe(1);
    await expect(readMarker()).resolves.toEqual({ born, high: farther });
  });

  test('`RAISE` creates a missing node marker with the present time, so that the restart guard restarts', async () => {
    const lease = leaseFor('k');
    await granted(lease);
    const far = tokenAhead();
    await expect(raise(lease, far, MARKER)).resolves.toBe(1);
    const { born, high } = await readMarker();
    expect(high).toBe(far);
    expect(Math.abs(born - Date.now())).toBeLessThan(PATIENCE);
  });

  test('`RAISE` refuses a token more than LEAD_MS ahead of the clock when the node has no marker', async () => {
    const lease = leaseFor('k');
    const token = await granted(lease);
    await expect(raise(lease, tokenAhead())).resolves.toBe(0);
    await expect(tokenOf('k')).resolves.toBe(token);
    const near = tokenAhead(LEAD_MS - 500);
    await expect(raise(lease, near)).resolves.toBe(1);
    await expect(redis.keys('*')).resolves.toEqual(['lock:{k}']);
  });

  test("`RAISE` raises no token when Redis has no memory to raise the node's marker", async () => {
    await writeMarker(Date.now() - TTL);
    const lease = leaseFor('k');
    const token = await granted(lease);
    await withoutMemory(async () => {
      await expect(raise(lease, tokenAhead(), MARKER)).rejects.toThrow('OOM');
    });
    await expect(tokenOf('k')).resolves.toBe(token);
  });
});

describe('the EXTEND script', () => {
  test('`EXTEND` sets the expiry of all records of a lease to the ttl plus LINGER_MS', async () => {
    const lease = leaseFor(['a', 'b']);
    await granted(lease);
    const record = await recordOf('a');
    await expect(extend(9 * TTL, lease)).resolves.toBe('1');
    for (const key of 'ab') await expectLife(key, 9 * TTL + LINGER_MS);
    await expect(recordOf('a')).resolves.toBe(record);
  });

  test('`EXTEND` changes nothing when one record is missing or holds another lease (S9)', async () => {
    const [theirs, gone] = [leaseFor(['a', 'b']), leaseFor(['a', 'gone'])];
    await write('b');
    for (const lease of [theirs, gone]) {
      await write('a', { id: lease.id });
      await expect(extend(9 * TTL, lease)).resolves.toBe('0');
    }
    for (const key of 'ab') await expectLife(key, TTL + LINGER_MS);
    await expect(redis.exists('lock:{gone}')).resolves.toBe(0);
  });

  test('`EXTEND` never shortens the expiry of a record, even of one record among several', async () => {
    const lease = leaseFor(['a', 'b']);
    await write('a', { id: lease.id, life: 9 * TTL + LINGER_MS });
    await write('b', { id: lease.id, life: PATIENCE + LINGER_MS });
    await expect(extend(2 * TTL, lease)).resolves.toBe('1');
    await expectLife('a', 9 * TTL + LINGER_MS);
    await expectLife('b', 2 * TTL + LINGER_MS);
    const alone = leaseFor('c');
    await write('c', { id: alone.id, life: 9 * TTL + LINGER_MS });
    await expect(extend(TTL, alone)).resolves.toBe('1');
    await expectLife('c', 9 * TTL + LINGER_MS);
  });

  test.each<[string, Written]>([
    ['was released', { state: 'F', life: TTL + LINGER_MS }],
    ['is kept for minHold', { state: 'K', life: TTL + LINGER_MS }],
    ['has lapsed', { state: 'H', life: LINGER_MS }],
    ['was released long ago', { state: 'F', life: PATIENCE }],
  ])('`EXTEND` does not revive a record that %s', async (_name, record) => {
    const [alone, several] = [leaseFor('k'), leaseFor(['a', 'k'])];
    for (const lease of [alone, several]) {
      await write('a', { id: lease.id });
      await write('k', { ...record, id: lease.id });
      await expect(extend(9 * TTL, lease)).resolves.toBe('0');
      await expectLife('a', TTL + LINGER_MS);
      await expectLife('k', record.life!);
      await expect(stateOf('k')).resolves.toBe(`${record.state}-`);
    }
  });

  test('`EXTEND` gives a record that has lost its expiry a new expiry', async () => {
    const lease = leaseFor('k');
    await granted(lease);
    await redis.persist('lock:{k}');
    await expect(extend(TTL, lease)).resolves.toBe('1');
    await expectLife('k', TTL + LINGER_MS);
  });

  test('`EXTEND` extends a lease when Redis is out of memory (S9)', async () => {
    const lease = leaseFor(['a', 'b']);
    await granted(lease);
    await withoutMemory(async () => {
      await expect(extend(9 * TTL, lease)).resolves.toBe('1');
      for (const key of 'ab') await expectLife(key, 9 * TTL + LINGER_MS);
    });
  });

  test('`EXTEND` extends or refuses each of several leases separately (S9)', async () => {
    const [first, second, third, fourth, fifth] = [
      leaseFor(['a', 'b']),
      leaseFor('c'),
      leaseFor(['d', 'e', 'f']),
      leaseFor(['gone', 'a']),
      leaseFor('g'),
    ];
    for (const lease of [first, third, fifth]) await granted(lease);
    await write('c');
    await expect(extend(9 * TTL, first, second, third, fourth, fifth)).resolves.toBe('10101');
    for (const key of 'abdefg') await expectLife(key, 9 * TTL + LINGER_MS);
    await expectLife('c', TTL + LINGER_MS);
  });

  test('`EXTEND` treats a key of another type as not held, and extends the other leases', async () => {
    await redis.rpush('lock:{a}', 'not a lock');
    await redis.set('lock:{c}', 'somebody');
    const mine = leaseFor('b');
    await granted(mine);
    await expect(extend(9 * TTL, leaseFor('a'), mine, leaseFor('c'))).resolves.toBe('010');
    await expectLife('b', 9 * TTL + LINGER_MS);
  });
});

describe('the RELEASE script', () => {
  test('`RELEASE` frees only the records that hold the lease (S7)', async () => {
    const lease = leaseFor(['a', 'b', 'gone']);
    await granted(lease);
    await write('b');
    await redis.del('lock:{gone}');
    const [a, b] = await redis.mget('lock:{a}', 'lock:{b}');
    for (let time = 0; time < 2; time++) {
      await expect(release(lease)).resolves.toBe(0);
      // A freed record keeps its last token and the id.
      await expect(redis.mget('lock:{a}', 'lock:{b}', 'lock:{gone}')).resolves.toEqual([
        `F${a!.slice(1)}`,
        b,
        null,
      ]);
    }
    await expectLife('b', TTL + LINGER_MS);
  });

  test('`RELEASE` keeps the last token for LINGER_MS after the release', async () => {
    const [long, short] = [leaseFor('long', { ttl: 3_600_000 }), leaseFor('short', { ttl: 10 })];
    await granted(long);
    await granted(short);
    await releaseAll([long, short]);
    for (const key of ['long', 'short']) {
      await expectLife(key, LINGER_MS);
      expect(await lifeOf(key)).toBeGreaterThan(LINGER_MS / 2);
    }
  });

  test('`RELEASE` changes neither a freed record nor the record of the next holder when it runs again', async () => {
    const [first, second] = [leaseFor('k'), leaseFor('k')];
    await granted(first);
    await release(first);
    await redis.pexpire('lock:{k}', 9_000);
    await release(first);
    expect(await lifeOf('k')).toBeLessThanOrEqual(9_000);
    await granted(second);
    const record = await recordOf('k');
    await release(first);
    await expect(recordOf('k')).resolves.toBe(record);
  });

  test('`RELEASE` frees a record that has lapsed', async () => {
    const lease = leaseFor('k');
    await granted(lease);
    await lapse('k');
    await release(lease);
    await expect(stateOf('k')).resolves.toBe('F-');
  });

  test('`RELEASE` frees records when Redis is out of memory, and these records stay free even if their expiry is extended later (S9)', async () => {
    const [alone, several] = [leaseFor('k'), leaseFor(['a', 'b'])];
    await granted(alone);
    await granted(several);
    await withoutMemory(async () => {
      await expect(release(alone)).resolves.toBe(0);
      await expect(release(several)).resolves.toBe(0);
      for (const key of 'kab') await expectLife(key, LINGER_MS);
      await expect(extend(TTL, alone, several)).resolves.toBe('00');
    });
    // Move the expiry of the records, as a server clock that steps back would.
    for (const key of 'kab') await redis.pexpire(recordKey(PREFIX, key), TTL + LINGER_MS);
    await granted(leaseFor(['k', 'a', 'b']));
  });

  test('`RELEASE` keeps records for the rest of minHold, whether the ttl is longer or shorter', async () => {
    const [long, short] = [
      leaseFor('long', { ttl: 3_600_000 }),
      leaseFor(['short', 'b', 'gone'], { ttl: 10_000 }),
    ];
    await granted(long);
    await granted(short);
    await write('b');
    await redis.del('lock:{gone}');
    for (const lease of [long, short]) lease.acquired(performance.now(), TTL);
    await releaseAll([long, short]);
    for (const key of ['long', 'short']) {
      await expect(stateOf(key)).resolves.toBe('K-');
      await expectLife(key, TTL + LINGER_MS);
    }
    await expect(stateOf('b')).resolves.toBe('H-');
    await expect(redis.exists('lock:{gone}')).resolves.toBe(0);
  });

  test('`RELEASE` keeps a record for minHold: no call can extend or free the record, and the record lapses by itself', async () => {
    const lease = leaseFor('k');
    const token = await granted(lease);
    lease.acquired(performance.now(), TTL);
    await release(lease);
    const answer = await acquire(leaseFor('k'));
    expect(readAcquireReply(answer)).toMatchObject({ granted: false, holder: { id: lease.id } });
    expect(Number((answer as number[])[2])).toBeLessThanOrEqual(TTL);
    await expect(extend(9 * TTL, lease)).resolves.toBe('0');
    // Send the release again as a client does after minHold.
    const late = new Lease(['k'], 'me', TTL);
    Object.assign(late, { id: lease.id });
    await release(late);
    await expect(stateOf('k')).resolves.toBe('K-');
    await expectLife('k', TTL + LINGER_MS);
    await lapse('k');
    expect(await granted(leaseFor('k'))).toBeGreaterThan(token);
  });

  test('`RELEASE` keeps a record for minHold even when Redis is out of memory', async () => {
    const lease = leaseFor('k');
    await granted(lease);
    lease.acquired(performance.now(), 2 * TTL);
    await withoutMemory(async () => {
      await release(lease);
      await expectLife('k', 2 * TTL + LINGER_MS);
      await expect(extend(9 * TTL, lease)).resolves.toBe('0');
      await expect(acquire(leaseFor('k'))).resolves.toEqual([1, await recordOf('k'), expect.any(Number)]);
    });
  });

  test('`RELEASE` does not change a value that is not a lock, and fails on a key of another type', async () => {
    await redis.set('lock:{a}', 'somebody');
    await redis.rpush('lock:{b}', 'not a lock');
    const lease = leaseFor(['a', 'b', 'c']);
    await write('c', { id: lease.id });
    await expect(release(lease)).rejects.toThrow('WRONGTYPE');
    await expect(recordOf('a')).resolves.toBe('somebody');
    await expect(stateOf('c')).resolves.toBe('F-');
  });

  test('`RELEASE` stores the tick that ran unless a later tick is stored (oncePerTick)', async () => {
    const tickAt = (at: number, owner: string): Lease => {
      const lease = leaseFor('k', { owner, tick: { schedule: 'nightly', at, life: TTL, from: 'release' } });
      lease.acquired(performance.now(), 0);
      return lease;
    };
    const ran = tickKey(PREFIX, ['k'], { schedule: 'nightly' });
    await write('k');
    await release(tickAt(1_700_000_000_000, 'me'));
    await release(tickAt(1_600_000_000_000, 'late'));
    await expect(redis.get(ran)).resolves.toBe('0001700000000000:me');
    await expect(stateOf('k')).resolves.toBe('H-');
    await release(tickAt(1_800_000_000_000, 'next'));
    await expect(redis.get(ran)).resolves.toBe('0001800000000000:next');
    const left = await redis.pttl(ran);
    expect(left).toBeLessThanOrEqual(TTL);
    expect(left).toBeGreaterThan(TTL - PATIENCE);
    await redis.del(ran);
    await redis.rpush(ran, 'not a mark');
    const own = tickAt(1_900_000_000_000, 'me');
    await write('k', { id: own.id });
    const [failed, others] = await releaseAll([own, leaseFor('other')]);
    expect(failed).toMatchObject({ message: expect.stringMatching(/^WRONGTYPE/) as unknown });
    expect(others).toBe(0);
    await expect(stateOf('k')).resolves.toBe('F-');
  });
});

describe('the FORCE_RELEASE script', () => {
  test('`FORCE_RELEASE` frees a record with one of the given ids, and keeps its last token', async () => {
    const lease = leaseFor('k');
    const token = await granted(lease);
    const record = (await recordOf('k'))!;
    await expect(forceRelease('k', THEIRS, lease.id)).resolves.toEqual([2]);
    await expect(recordOf('k')).resolves.toBe(`F${record.slice(1)}`);
    await expectLife('k', LINGER_MS);
    expect(await granted(leaseFor('k'))).toBeGreaterThan(token);
  });

  test('`FORCE_RELEASE` frees a record that is kept for minHold, or has no expiry', async () => {
    for (const record of [{ state: 'K' }, { life: Infinity }] as const) {
      await write('k', record);
      await expect(forceRelease('k', THEIRS)).resolves.toEqual([1]);
      await expect(stateOf('k')).resolves.toBe('F-');
      await expectLife('k', LINGER_MS);
    }
  });

  test('`FORCE_RELEASE` changes neither a free record, nor a record with another id, nor a missing key', async () => {
    const lease = leaseFor('k');
    await granted(lease);
    const record = await recordOf('k');
    await expect(forceRelease('k', THEIRS)).resolves.toEqual([]);
    await expect(recordOf('k')).resolves.toBe(record);
    await release(lease);
    await expect(forceRelease('k', lease.id)).resolves.toEqual([]);
    await expect(forceRelease('gone', lease.id)).resolves.toEqual([]);
    await expect(redis.exists('lock:{gone}')).resolves.toBe(0);
  });

  test('`FORCE_RELEASE` never overwrites a value that is not a lock (S19)', async () => {
    await redis.set('lock:{k}', 'somebody');
    await expect(forceRelease('k', 'somebody', THEIRS)).resolves.toEqual([]);
    await expect(recordOf('k')).resolves.toBe('somebody');
    await redis.rpush('lock:{list}', 'not a lock');
    await expect(forceRelease('list', THEIRS)).rejects.toThrow('WRONGTYPE');
  });

  test('`FORCE_RELEASE` frees a record when Redis is out of memory, and the record stays free even if its expiry is extended later', async () => {
    await write('k');
    await withoutMemory(async () => {
      await expect(forceRelease('k', THEIRS)).resolves.toEqual([1]);
      await expectLife('k', LINGER_MS);
    });
    await redis.pexpire('lock:{k}', TTL + LINGER_MS);
    await granted(leaseFor('k'));
  });
});

describe('the READ script', () => {
  test('`READ` returns held records with their remaining time, and no free or lapsed records', async () => {
    const lease = leaseFor('held');
    await granted(lease);
    await write('kept', { state: 'K' });
    await write('for ever', { life: Infinity });
    await write('free', { state: 'F' });
    await write('lapsed', { life: LINGER_MS });
    await write('was kept', { state: 'K', life: LINGER_MS });
    const found = (await read(
      'held',
      'none',
      'kept',
      'free',
      'for ever',
      'lapsed',
      'was kept',
    )) as unknown[][];
    expect(found).toEqual([
      [await recordOf('held'), expect.any(Number)],
      [],
      [await recordOf('kept'), expect.any(Number)],
      [],
      [await recordOf('for ever'), -1],
      [],
      [],
    ]);
    for (const index of [0, 2]) {
      expect(Number(found[index]![1])).toBeLessThanOrEqual(TTL);
      expect(Number(found[index]![1])).toBeGreaterThan(TTL - PATIENCE);
    }
  });

  test('`READ` reports values that are not locks, and still returns other locks (S19)', async () => {
    await redis.set('lock:{a}', 'somebody');
    await redis.rpush('lock:{b}', 'not a lock');
    await redis.set('lock:{c}', '1'.repeat(80), 'PX', LINGER_MS);
    await write('d');
    await expect(read('a', 'b', 'c', 'd')).resolves.toEqual([
      [FOREIGN],
      [expect.stringMatching(/^WRONGTYPE/)],
      [FOREIGN],
      [await recordOf('d'), expect.any(Number)],
    ]);
  });

  test('`READ` changes no data', async () => {
    await write('k', { life: LINGER_MS });
    const before = [await recordOf('k'), await redis.dbsize()];
    await read('k', 'none');
    expect([await recordOf('k'), await redis.dbsize()]).toEqual(before);
  });
});

/** A waiter of a process whose random name consists of this letter. */
const waiterOf = (letter: string, ...keys: readonly string[]) => waiterIn('exclusive', letter, ...keys);

describe('the queue of a key', () => {
  const listener = (letter: string, ...keys: readonly string[]) => listen(waiterOf(letter, ...keys));

  /** The text of a message, for the waiter of this listener. */
  function message(after: number, released: Lease | undefined, { waiter }: Listener): string {
    return `${after} ${released?.id ?? '-'} ${waiter.number}:${waiter.owner}`;
  }

  async function holding(key = 'k'): Promise<Lease> {
    const lease = leaseFor(key);
    await granted(lease);
    return lease;
  }

  /** Asks for a held lock, and so joins the queue. */
  function wait(waiter: WaiterId, waited: number): Promise<number | readonly (number | string)[]> {
    return acquire(leaseFor(waiter.keys), { waiter, waited });
  }

  test('the record of a key has the flag `w` from the first waiter until nobody waits', async () => {
    const [first, second] = [await listener('a'), await listener('b')];
    const holder = await holding();
    await acquire(leaseFor('k'), { ordered: true });
    await expect(stateOf('k')).resolves.toBe('H-');
    await wait(first.waiter, 900);
    await expect(stateOf('k')).resolves.toBe('Hw');
    await expectLife('k', TTL + LINGER_MS);
    await wait(second.waiter, 500);
    await release(holder);
    await expect(stateOf('k')).resolves.toBe('Fw');
    const lease = leaseFor('k');
    // The second waiter is still in the queue.
    await expect(acquire(lease, { waiter: first.waiter, waited: 950 })).resolves.toEqual([
      0,
      expect.any(Number),
      1,
    ]);
    await expect(stateOf('k')).resolves.toBe('Hw');
    await release(lease);
    const other = leaseFor('k');
    await expect(acquire(other, { waiter: second.waiter, waited: 550 })).resolves.toEqual(expect.any(Number));
    await expect(stateOf('k')).resolves.toBe('H-');
    await release(other);
    await expect(stateOf('k')).resolves.toBe('F-');
    await expect(redis.keys('*')).resolves.toEqual(['lock:{k}']);
    first.stop();
    second.stop();
  });

  test('the record keeps the flag `w` when a caller whose queue is on another node acquires the lock', async () => {
    const first = await listener('a');
    const holder = await holding();
    await wait(first.waiter, 900);
    await release(holder);
    const passing = leaseFor('k');
    await expect(acquire(passing, { ordered: false })).resolves.toEqual(expect.any(Number));
    await expect(stateOf('k')).resolves.toBe('Hw');
    await toldTo([first]);
    await expect(release(passing)).resolves.toBe(1);
    expect(await toldTo([first])).toEqual([[message(0, passing, first)]]);
    first.stop();
  });

  test('a release notifies waiters in order: the first asks at once, the next two a little later (stand-bys)', async () => {
    const all = await Promise.all(['a', 'b', 'c', 'd'].map((letter) => listener(letter)));
    const holder = await holding();
    for (const [index, { waiter }] of all.entries()) await wait(waiter, 900 - index * 100);
    await expect(release(holder)).resolves.toBe(3);
    const [a, b, c] = all as [Listener, Listener, Listener];
    expect(await toldTo(all)).toEqual([
      [message(0, holder, a)],
      [message(200, holder, b)],
      [message(200, holder, c)],
      [],
    ]);
    // A second release notifies nobody: the record is free.
    await expect(release(holder)).resolves.toBe(0);
    for (const { stop } of all) stop();
  });

  test('a waiter is not notified as a stand-by twice within a short time, and the next waiter is notified instead', async () => {
    const all = await Promise.all(['a', 'b', 'c', 'd'].map((letter) => listener(letter)));
    const [a, b, c, d] = all as [Listener, Listener, Listener, Listener];
    const serverTime = async (): Promise<number> => {
      const [seconds, micros] = await redis.time();
      return Number(seconds) * 1_000 + Number(micros) / 1_000;
    };
    /** Begins two turns by two releases in one write; returns the milliseconds that they took by the server's clock. */
    const twoTurns = async (one: Lease, two: Lease): Promise<number> => {
      for (const [index, { waiter }] of all.entries()) await wait(waiter, 900 - index * 100);
      const [began, , , , ended] = await together(() => [
        serverTime(),
        release(one),
        acquire(two, { waiter: a.waiter, waited: 1_000 }),
        release(two),
        serverTime(),
      ]);
      return ended - began;
    };

    // The server can stall between the two turns. Then another attempt follows.
    for (;;) {
      const [one, two] = [await holding(), leaseFor('k')];
      const took = await twoTurns(one, two);
      const heard = await toldTo(all);
      for (const { waiter } of all) await leave(waiter);
      // A waiter that leaves notifies the next waiter. Discard these messages.
      await toldTo(all);
      if (took > 40) continue;
      expect(heard).toEqual([
        [message(0, one, a)],
        [message(200, one, b), message(0, two, b)],
        [message(200, one, c)],
        [message(200, two, d)],
      ]);
      break;
    }

    await twoTurns(await holding(), leaseFor('k'));
    await toldTo(all);
    const three = leaseFor('k');
    await acquire(three, { waiter: b.waiter, waited: 1_000 });
    // After this delay the announced turns have passed.
    await delay(60);
    await release(three);
    expect(await toldTo(all)).toEqual([[], [], [message(0, three, c)], [message(200, three, d)]]);
    for (const { waiter, stop } of all) {
      await leave(waiter);
      stop();
    }
    await expect(redis.keys('*')).resolves.toEqual(['lock:{k}']);
  });

  test('a waiter of a dead process is removed from the queue, and the next waiter is notified at once', async () => {
    const alive = await listener('b');
    const holder = await holding();
    await wait(waiterOf('9'), 900);
    await wait(alive.waiter, 100);
    await expect(release(holder)).resolves.toBe(1);
    expect(await toldTo([alive])).toEqual([[message(0, holder, alive)]]);
    await expect(queue()).resolves.toEqual([alive.name]);
    alive.stop();
  });

  test('the turn of a waiter is protected for a short time, and then that waiter is removed from the queue', async () => {
    const [first, second] = [await listener('a'), await listener('b')];
    const holder = await holding();
    await wait(first.waiter, 900);
    await wait(second.waiter, 500);
    const [, next, passing] = await together(() => [
      release(holder),
      wait(second.waiter, 500),
      acquire(leaseFor('k'), { ordered: true }),
    ]);
    for (const answer of [next, passing]) {
      expect(answer).toEqual([-4, first.name, expect.any(Number)]);
      expect((answer as number[])[2]).toBeLessThanOrEqual(150);
      expect(readAcquireReply(answer)).toMatchObject({ granted: false, holder: { owner: 'host:a' } });
    }
    await until(async () => typeof (await wait(second.waiter, 600)) === 'number');
    await expect(redis.exists(queueKey(PREFIX, 'k'))).resolves.toBe(0);
    first.stop();
    second.stop();
  });

  test('a caller that came before the first waiter gets the lock', async () => {
    const first = await listener('a');
    const holder = await holding();
    await wait(first.waiter, 900);
    const [, answer] = await together(() => [release(holder), wait(waiterOf('b'), 5_000)]);
    expect(answer).toEqual([0, expect.any(Number), 1]);
    await expect(queue()).resolves.toEqual([first.name]);
    first.stop();
  });

  test('a waiter gets the lock during its turn, and is then removed from the queue', async () => {
    const first = await listener('a');
    const holder = await holding();
    await wait(first.waiter, 900);
    const lease = leaseFor('k');
    const [, answer] = await together(() => [
      release(holder),
      acquire(lease, { waiter: first.waiter, waited: 950 }),
    ]);
    expect(answer).toEqual(expect.any(Number));
    await release(lease);
    await expect(redis.keys('*')).resolves.toEqual(['lock:{k}']);
    first.stop();
  });

  test('the first waiter is notified at the next request after the holder has lapsed', async () => {
    const first = await listener('a');
    await holding();
    await wait(first.waiter, 900);
    await lapse('k');
    await expect(acquire(leaseFor('k'), { ordered: true })).resolves.toEqual([
      -4,
      first.name,
      expect.any(Number),
    ]);
    expect(await toldTo([first])).toEqual([[message(0, undefined, first)]]);
    first.stop();
  });

  test.each([
    ['it is out of memory', 'maxmemory', '1', '0', 'OOM'],
    ['it has too few replicas', 'min-replicas-to-write', '1', '0', 'NOREPLICAS'],
  ])(
    'the queue does not block the server when the server cannot store a turn because %s',
    async (_name, setting, short, plenty, error) => {
      // A server of its own: a script that does not end blocks its server for ever.
      await onOwnServer(async (own) => {
        const [client, subscriber] = [redis, own.client()];
        const waiter = waiterOf('a');
        await subscriber.subscribe(`${BASE}${waiter.process}`);
        await holding();
        await wait(waiter, 900);
        await lapse('k');
        await client.config('SET', setting, short);
        const answer = acquire(leaseFor('k'), { ordered: true }).catch((reason: Error) => reason.message);
        // A timer that is left would keep the process of the test file alive.
        const late = delay(5_000, 'no answer', { ref: false });
        await expect(Promise.race([answer, late])).resolves.not.toBe('no answer');
        await expect(acquire(leaseFor('other'))).rejects.toThrow(error);
        await client.config('SET', setting, plenty);
        await expect(acquire(leaseFor('other'))).resolves.toEqual(expect.any(Number));
      });
    },
  );

  test.each<[string, Written | undefined, boolean]>([
    ['no record', undefined, true],
    ['a record that has lapsed', { life: LINGER_MS }, true],
    ['a record that is held', {}, false],
    ['a record that is kept for minHold', { state: 'K' }, false],
    ['a record that is held for ever', { life: Infinity }, false],
  ])(
    'the next waiter is notified when a waiter leaves, but only if the lock is free (here: %s)',
    async (_name, record, isTold) => {
      const [first, second] = [await listener('a'), await listener('b')];
      await holding();
      await wait(first.waiter, 900);
      await wait(second.waiter, 500);
      await redis.del('lock:{k}');
      if (record) await write('k', record);
      // A waiter that is not in the queue notifies nobody when it leaves.
      await leave(waiterOf('c'));
      await leave(first.waiter);
      expect(await toldTo([second])).toEqual([isTold ? [message(0, undefined, second)] : []]);
      first.stop();
      second.stop();
    },
  );

  test('a waiter for several keys is in the queue of only one key at a time, and gets no turn at the other keys', async () => {
    const [both, other] = [await listener('a', 'a', 'b'), await listener('b', 'b')];
    const holder = await holding('b');
    await wait(both.waiter, 900);
    await wait(other.waiter, 500);
    await expect(queue('b')).resolves.toEqual([both.name, other.name]);
    const inTheWay = await holding('a');
    const [told, refused, answer] = await together(() => [
      release(holder),
      wait(both.waiter, 950),
      wait(other.waiter, 550),
    ]);
    expect(told).toBe(2);
    expect(refused).toEqual([1, expect.stringContaining(inTheWay.id), expect.any(Number)]);
    // The refusal at the key a has passed the turn at the key b on.
    expect(answer).toEqual(expect.any(Number));
    expect(await toldTo([both, other])).toEqual([
      [message(0, holder, both)],
      [message(200, holder, other), message(0, undefined, other)],
    ]);
    await expect(queue('a')).resolves.toEqual([both.name]);
    await expect(redis.exists(queueKey(PREFIX, 'b'))).resolves.toBe(0);
    both.stop();
    other.stop();
  });

  test('a waiter that gets its lock is removed from the queues of all its keys, and the flag `w` stays for other waiters', async () => {
    const [both, other] = [await listener('a', 'a', 'b'), await listener('b', 'b')];
    const holder = await holding('b');
    await wait(both.waiter, 900);
    await wait(other.waiter, 500);
    await release(holder);
    const lease = leaseFor(['a', 'b']);
    await expect(acquire(lease, { waiter: both.waiter, waited: 950 })).resolves.toEqual([
      0,
      expect.any(Number),
      1,
    ]);
    await expect(stateOf('a')).resolves.toBe('H-');
    await expect(stateOf('b')).resolves.toBe('Hw');
    await toldTo([both, other]);
    await expect(release(lease)).resolves.toBe(1);
    expect(await toldTo([both, other])).toEqual([[], [message(0, lease, other)]]);
    both.stop();
    other.stop();
  });

  test('a caller whose request arrives too late is not put into the queue (S16)', async () => {
    await holding();
    await acquire(leaseFor('k'), { deadline: -100, waiter: waiterOf('a') });
    await expect(redis.exists(queueKey(PREFIX, 'k'))).resolves.toBe(0);
    await expect(stateOf('k')).resolves.toBe('H-');
  });

  test('a release notifies the first waiter even when Redis is out of memory', async () => {
    const first = await listener('a');
    const holder = await holding();
    await wait(first.waiter, 900);
    await withoutMemory(async () => {
      await expect(release(holder)).resolves.toBe(1);
    });
    expect(await toldTo([first])).toEqual([[message(0, holder, first)]]);
    first.stop();
  });

  test('a release by a Redis user without the right to publish succeeds even if a caller waits (S7)', async () => {
    await redis.call('ACL', 'SETUSER', 'mute', 'on', '>secret', '~*', '+@all', 'resetchannels');
    const mute = server.client({ username: 'mute', password: 'secret' });
    const holder = await holding();
    const waiter = waiterOf('a');
    await wait(waiter, 0);
    await expect(
      run(RELEASE, packRelease([{ lease: holder, pause: 0 }], PREFIX, BASE), mute),
    ).resolves.toEqual([1]);
    await expect(stateOf('k')).resolves.toBe('Fw');
    await expect(queue()).resolves.toEqual([waiterName(waiter)]);
    await redis.call('ACL', 'DELUSER', 'mute');
  });
});

describe('the Lua text for a token', () => {
  test.each([
    1,
    99_999_999,
    100_000_000,
    1_799_999_999_999_999,
    1_800_000_000_000_000,
    9_007_199_199_999_999,
    9_007_199_200_000_000,
    Number.MAX_SAFE_INTEGER,
  ])('the Lua text for a token writes %d with 16 digits', async (token) => {
    const lua = `local token = tonumber(ARGV[1]) return ${digitsOf('token')}`;
    await expect(redis.eval(lua, 0, token)).resolves.toBe(String(token).padStart(16, '0'));
  });
});

describe('a single number as the reply to a command', () => {
  test('a reply that is a single number grants every lease, with the token from the clock or from the proposal', () => {
    const clock = tokenAt(1_700_000_000_000);
    const [first, second] = ['a', 'b'].map((key) => requestFor(leaseFor(key)));
    expect(acquireAnswers(clock, [first!, second!])).toEqual([clock, clock, 1_700_000_000_000_000]);
    // A client that is passed in may return numbers as strings (`stringNumbers`).
    expect(acquireAnswers(String(clock), [first!])).toEqual([clock, 1_700_000_000_000_000]);
    for (const [proposal, token] of [
      [clock - 1, clock],
      [clock + 1, clock + 1],
    ] as const) {
      const proposed = requestFor(leaseFor('c'), { proposal });
      expect(acquireAnswers(clock, [first!, proposed])).toEqual([token, token, 1_700_000_000_000_000]);
    }
  });

  /** The reply as the script gives it. */
  function replyTo(requests: readonly AcquireRequest[], marker?: string): Promise<unknown> {
    const deadline = Date.now() + PATIENCE;
    const node = { keyPrefix: PREFIX, base: BASE, marker, identity: undefined, wall: Date.now() };
    const command = { ...node, ordered: false, deadline, guard: 0 };
    return run(ACQUIRE, packAcquire(requests, command));
  }

  test.each([0, 1_000])(
    'a reply that is a single number gives each lease the token in its record (proposed token ahead of the clock by %d ms)',
    async (ahead) => {
      const terms = ahead === 0 ? {} : { proposal: tokenAhead(ahead) };
      const requests = ['a', 'b', 'c'].map((key) => requestFor(leaseFor(key), terms));
      const reply = await replyTo(requests);
      expect(reply).toEqual(expect.any(Number));
      const answers = acquireAnswers(reply, requests);
      expect(answers.slice(0, 3)).toEqual(await Promise.all(['a', 'b', 'c'].map(tokenOf)));
      expect(Math.abs(Number(answers[3]) / 1_000 - Date.now())).toBeLessThan(PATIENCE);
    },
  );

  test('the reply contains separate answers when one lease is refused', async () => {
    await granted(leaseFor('b'));
    const leases = ['a', 'b', 'c'].map((key) => leaseFor(key));
    const answers = await acquireAll(leases.map((lease) => requestFor(lease)));
    expect(answers).toEqual([
      await tokenOf('a'),
      [1, expect.any(String), expect.any(Number)],
      await tokenOf('c'),
    ]);
  });

  test.each([
    [
      "the reply is not a single number when the token comes from the node's marker",
      LEAD_MS - 100,
      -1,
      'object',
    ],
    ["the reply is not a single number when the token raises the node's marker", 3_600_000, 1, 'object'],
    [
      "the reply is a single number when the proposed token is above the node's marker and does not raise the marker",
      LEAD_MS - 100,
      1,
      'number',
    ],
  ])('%s', async (_name, ahead, above, form) => {
    const high = tokenAhead(ahead);
    await writeMarker(Date.now() - TTL, high);
    const requests = [requestFor(leaseFor('k'), { proposal: high + above })];
    const reply = await replyTo(requests, MARKER);
    expect(typeof reply).toBe(form);
    expect(acquireAnswers(reply, requests)).toEqual([high + 1, expect.any(Number)]);
    await expect(tokenOf('k')).resolves.toBe(high + 1);
    await expect(readMarker()).resolves.toMatchObject({ high: ahead > LEAD_MS ? high + 1 : high });
  });

  test('the reply 0 to a command with releases means that no release notified a waiter', async () => {
    const lease = leaseFor('k');
    await granted(lease);
    await expect(run(RELEASE, packRelease([{ lease, pause: 0 }], PREFIX, BASE))).resolves.toBe(0);
    expect(releaseAnswer(0, 5)).toBe(0);
    expect(releaseAnswer([0, 2], 1)).toBe(2);
  });
});

describe('several leases in one command', () => {
  test.each([false, true])(
    'leases in one command are granted or refused separately when each has one key (the node keeps the queue: %p)',
    async (ordered) => {
      await write('b');
      await redis.rpush('lock:{list}', 'of another type');
      await redis.set('lock:{foreign}', 'somebody');
      const leases = ['a', 'b', 'list', 'foreign', 'a', 'c'].map((key) => leaseFor(key));
      const answers = await acquireAll(
        leases.map((lease) => requestFor(lease)),
        { ordered, marked: true },
      );
      expect(answers).toEqual([
        expect.any(Number),
        [1, await recordOf('b'), expect.any(Number)],
        expect.objectContaining({ message: expect.stringMatching(/^WRONGTYPE/) as unknown }),
        expect.objectContaining({ message: expect.stringContaining(FOREIGN) as unknown }),
        [1, await recordOf('a'), expect.any(Number)],
        expect.any(Number),
      ]);
      for (const [key, lease] of [
        ['a', leases[0]],
        ['c', leases[5]],
      ] as const) {
        expect(parseRecord((await recordOf(key))!).id).toBe(lease!.id);
      }
      await expect(redis.keys(`${PREFIX}*`)).resolves.toHaveLength(6);
    },
  );

  test.each([false, true])(
    'leases in one command are granted or refused separately with several keys, ticks and waiters (the node keeps the queue: %p)',
    async (ordered) => {
      const tick = { schedule: 'nightly', at: 1_700_000_000_000, life: TTL, from: 'release' } as const;
      await redis.set(tickKey(PREFIX, ['ran'], tick), '0001800000000000:me');
      await write('b');
      await redis.rpush('lock:{list}', 'of another type');
      const waiter = waiterOf('a', 'b');
      const leases = [
        leaseFor('a'),
        leaseFor('b'),
        leaseFor(['list', 'x']),
        leaseFor(['c', 'd', 'e']),
        leaseFor(['ran', 'y'], { tick }),
        leaseFor(['f', 'g'], { tick }),
        leaseFor('z'),
      ];
      const requests = leases.map((lease, index) =>
        requestFor(lease, index === 1 ? { waiter, waited: 12.5 } : {}),
      );

      const theirs = await recordOf('b');

      const answers = await acquireAll(requests, { ordered, marked: true });

      expect(answers).toEqual([
        expect.any(Number),
        [1, theirs, expect.any(Number)],
        expect.objectContaining({
          name: 'ReplyError',
          message: expect.stringMatching(/^WRONGTYPE/) as unknown,
        }),
        expect.any(Number),
        [-3, '0001800000000000:me', -1],
        expect.any(Number),
        expect.any(Number),
      ]);
      for (const [keys, lease, token] of [
        ['a', leases[0], answers[0]],
        ['cde', leases[3], answers[3]],
        ['fg', leases[5], answers[5]],
        ['z', leases[6], answers[6]],
      ] as const) {
        for (const key of keys) {
          expect(parseRecord((await recordOf(key))!)).toMatchObject({ id: lease!.id, fencingToken: token });
          await expectLife(key, TTL + LINGER_MS);
        }
      }
      await expect(redis.exists('lock:{x}', 'lock:{y}', 'lock:{ran}')).resolves.toBe(0);
      await expect(redis.zrange(queueKey(PREFIX, 'b'), 0, -1)).resolves.toEqual(
        ordered ? [waiterName(waiter)] : [],
      );
      await expect(stateOf('b')).resolves.toBe(ordered ? 'Hw' : 'H-');
    },
  );

  test('all leases in one command are refused while the data is younger than the restart guard, or after the deadline', async () => {
    const leases = [leaseFor('a'), leaseFor(['b', 'c'])];
    const requests = leases.map((lease) => requestFor(lease));
    for (const answer of await acquireAll(requests, { guard: TTL }))
      expect(tooYoungFor(answer)).toBeGreaterThan(0);
    for (const answer of await acquireAll(requests, { deadline: -1_000 })) {
      expect(readAcquireReply(answer)).toBeInstanceOf(NoTimeError);
    }
    await expect(redis.keys('*')).resolves.toEqual([MARKER]);
  });

  test('leases in one command are released separately when each has one key', async () => {
    const leases = ['a', 'b', 'list', 'gone', 'c'].map((key) => leaseFor(key));
    await redis.rpush('lock:{list}', 'of another type');
    await write('b');
    for (const index of [0, 4]) await granted(leases[index]!);
    const error = expect.objectContaining({ name: 'ReplyError' }) as unknown;
    await expect(releaseAll(leases)).resolves.toEqual([0, 0, error, 0, 0]);
    await expect(Promise.all(['a', 'b', 'c'].map(stateOf))).resolves.toEqual(['F-', 'H-', 'F-']);
  });

  test('leases in one command are released separately, and an error of one release does not affect the others', async () => {
    const tick = { schedule: 'nightly', at: 1_700_000_000_000, life: TTL, from: 'release' } as const;
    const [ran, theirs, list, several, kept, last] = [
      leaseFor(['a', 'aa'], { tick }),
      leaseFor('b'),
      leaseFor(['list', 'l']),
      leaseFor(['c', 'd']),
      leaseFor('e'),
      leaseFor('f'),
    ];
    for (const lease of [ran, several, kept, last]) await granted(lease);
    await write('b');
    await write('l', { id: list.id });
    await redis.rpush('lock:{list}', 'of another type');
    ran.acquired(performance.now(), 0);
    kept.acquired(performance.now(), TTL);

    const answers = await releaseAll([ran, theirs, list, several, kept, last]);

    const error = expect.objectContaining({ name: 'ReplyError' }) as unknown;
    expect(answers).toEqual([0, 0, error, 0, 0, 0]);
    const keys = ['a', 'aa', 'b', 'l', 'c', 'd', 'e', 'f'];
    await expect(Promise.all(keys.map(stateOf))).resolves.toEqual([
      'F-',
      'F-',
      'H-',
      'F-',
      'F-',
      'F-',
      'K-',
      'F-',
    ]);
    await expect(redis.get(tickKey(PREFIX, ['a', 'aa'], tick))).resolves.toBe('0001700000000000:me');
  });

  test('leases in one command fail together with READONLY on a replica, so that the client can reconnect', async () => {
    const lease = leaseFor('held');
    await granted(lease);
    await redis.replicaof('127.0.0.1', 1);
    try {
      const requests = ['a', 'b'].map((key) => requestFor(leaseFor(key)));
      await expect(acquireAll(requests)).rejects.toThrow(/^READONLY/);
      await expect(releaseAll([lease])).rejects.toThrow(/^READONLY/);
    } finally {
      await redis.replicaof('NO', 'ONE');
    }
  });
});

test('`readAcquireReply` accepts numbers that a client returns as strings', () => {
  expect(readAcquireReply('1700000000000000')).toEqual({ granted: true, token: 1_700_000_000_000_000 });
  expect(readAcquireReply(['0', '5', '2'])).toEqual({ granted: true, token: 5, nextIsFirst: true });
  expect(tooYoungFor(['-2', '700'])).toBe(700);
  expect(readAcquireReply(['1', `H-${'0'.repeat(16)}:${THEIRS}:1700000000000:them`, '-1'])).toMatchObject({
    granted: false,
    holder: {
      id: THEIRS,
      owner: 'them',
      remaining: Infinity,
      since: 1_700_000_000_000,
      fencingToken: 0,
      mode: 'exclusive',
    },
  });
});

test.each(['no number', '', null, undefined, 0, -1, 0.5, 2 ** 53])(
  '`readAcquireReply` rejects %p as a fencing token',
  (reply) => {
    expect(readAcquireReply(reply)).toBeInstanceOf(Error);
  },
);
