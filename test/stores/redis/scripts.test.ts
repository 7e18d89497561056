import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { setTimeout as delay } from 'node:timers/promises';
import {
  ACQUIRE,
  BIRTH,
  EXTEND,
  LEAVE,
  RAISE,
  RELEASE,
  TOO_LATE,
  TOO_YOUNG,
  TURN_OF_ANOTHER,
} from '../../../lib/stores/redis/scripts.js';
import { counterAt } from '../../../lib/core/fencing-token.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { until } from '../../support/until.js';

const DAY = 86_400_000;

let server: RedisServer;
let redis: Redis;

beforeAll(async () => {
  server = await startRedis();
  redis = server.client();
});
afterAll(() => server.stop());
beforeEach(() => redis.flushall());

/** Milliseconds: a counter that starts so far ahead is not overtaken by the clock before the server has seen it. */
const AHEAD = 1_900;

interface Terms {
  readonly ttl?: number;
  readonly deadline?: number;
  readonly guard?: number;
  readonly seed?: number;
  readonly order?: { readonly place?: string; readonly waited: number; readonly next?: number };
}

/** Runs ACQUIRE for these keys; what it returns, without the server's time and that nobody waits. */
async function acquire(keys: string[], value: string, terms: Terms = {}): Promise<(number | string)[]> {
  const { ttl = 5_000, deadline = 0, guard = 0, seed = 0, order } = terms;
  const all = [
    ...keys.map((key) => `${key}:l`),
    ...keys.map((key) => `${key}:f`),
    ...(guard ? ['born'] : []),
    ...(order ? keys.map((key) => `${key}:q`) : []),
  ];
  const { place, waited = 0, next = '-' } = order ?? {};
  const numbers = `${keys.length} ${ttl} ${DAY} ${deadline} ${guard} ${seed} ${order ? 1 : 0} -`;
  const args = ['wake:', value, numbers, place === undefined ? '' : `${waited} ${next} ${place}`];
  const [answer, micros] = (await redis.eval(ACQUIRE.lua, all.length, ...all, ...args)) as [
    number | (number | string)[] | Error,
    number,
  ];
  expect(Math.abs(Number(micros) / 1_000 - Date.now())).toBeLessThan(10_000);
  if (answer instanceof Error) throw answer;
  return Array.isArray(answer) ? answer : [0, answer];
}

function onQueues(script: { lua: string }, keys: string[], ...args: (string | number)[]): Promise<unknown> {
  const all = [...keys.map((key) => `${key}:l`), ...keys.map((key) => `${key}:q`)];
  return redis.eval(script.lua, all.length, ...all, keys.length, ...args);
}

async function release(keys: string[], value: string, { keep = 0, after = 0 } = {}): Promise<unknown> {
  const all = [...keys.map((key) => `${key}:l`), ...keys.map((key) => `${key}:q`)];
  const numbers = `${keys.length} ${keep} ${after} -`;
  const answers = await redis.eval(RELEASE.lua, all.length, ...all, 'wake:', value, numbers, '');
  return onlyAnswer(answers);
}

/** What a script answers that was asked for one claim. */
function onlyAnswer(answers: unknown): unknown {
  const [answer] = answers as unknown[];
  if (answer instanceof Error) throw answer;
  return answer;
}

function leave(keys: string[], place: string): Promise<unknown> {
  return onQueues(LEAVE, keys, place, 'wake:');
}

function onLocks(script: { lua: string }, keys: string[], ...args: (string | number)[]): Promise<unknown> {
  const all = [...keys.map((key) => `${key}:l`), ...keys.map((key) => `${key}:f`)];
  return redis.eval(script.lua, all.length, ...all, keys.length, ...args);
}

/** Runs EXTEND for these claims, each with its keys and its value. */
function extend(ttl: number, ...claims: (readonly [keys: string[], value: string])[]): Promise<unknown> {
  const all = claims.flatMap(([keys]) => [
    ...keys.map((key) => `${key}:l`),
    ...keys.map((key) => `${key}:f`),
  ]);
  const args = claims.flatMap(([keys, value]) => [keys.length, value]);
  return redis.eval(EXTEND.lua, all.length, ...all, ttl, DAY, ...args);
}

test.each([
  ['ACQUIRE', ACQUIRE],
  ['BIRTH', BIRTH],
  ['RAISE', RAISE],
  ['EXTEND', EXTEND],
  ['RELEASE', RELEASE],
  ['LEAVE', LEAVE],
])('the hash of %s is the one that the server computes', async (_name, { lua, sha }) => {
  await expect(redis.script('LOAD', lua)).resolves.toBe(sha);
});

describe('ACQUIRE', () => {
  test('stores the value with its ttl in one command, so that no key is ever without an expiry', async () => {
    const [outcome, counter] = await acquire(['k'], 'mine');
    expect(outcome).toBe(0);
    await expect(redis.get('k:l')).resolves.toBe('mine');
    expect(await redis.pttl('k:l')).toBeGreaterThan(1_000);
    await expect(redis.get('k:f')).resolves.toBe(String(counter));
    expect(await redis.pttl('k:f')).toBeGreaterThan(DAY - 10_000);
  });

  test('names the first key in the way, its value and its remaining time, and stores nothing', async () => {
    await redis.set('b:l', 'theirs', 'PX', 70_000);
    const [position, value, remaining] = await acquire(['a', 'b', 'c'], 'mine');
    expect([position, value]).toEqual([2, 'theirs']);
    expect(remaining).toBeGreaterThan(60_000);
    await expect(redis.keys('*')).resolves.toEqual(['b:l']);
  });

  test('run twice for the same claim grants again with the same counter: a client may resend it', async () => {
    const first = await acquire(['k'], 'mine');
    await expect(acquire(['k'], 'mine')).resolves.toEqual(first);
  });

  test('on a key of another type is a loud error and not a lock that is held for ever (S19)', async () => {
    await redis.rpush('b:l', 'not a lock');
    await expect(acquire(['a', 'b'], 'mine')).rejects.toThrow('WRONGTYPE');
    await expect(redis.keys('*')).resolves.toEqual(['b:l']);
  });

  test('when memory is short stores nothing, while EXTEND, RELEASE work (S9)', async () => {
    await acquire(['held'], 'mine');
    await redis.config('SET', 'maxmemory', '1');
    try {
      await expect(acquire(['a', 'b'], 'mine')).rejects.toThrow('OOM');
      await expect(redis.exists('a:l', 'b:l')).resolves.toBe(0);
      await expect(extend(9_000, [['held'], 'mine'])).resolves.toBe('1');
      await expect(release(['held'], 'mine')).resolves.toBe(0);
      await expect(redis.exists('held:l')).resolves.toBe(0);
    } finally {
      await redis.config('SET', 'maxmemory', '0');
    }
  });

  test('does nothing when it arrives after its deadline on the server clock (S16)', async () => {
    const [outcome, late] = await acquire(['k'], 'mine', { deadline: Date.now() - 300 });
    expect(outcome).toBe(TOO_LATE);
    expect(late).toBeGreaterThanOrEqual(299);
    await expect(redis.dbsize()).resolves.toBe(0);
    await expect(acquire(['k'], 'mine', { deadline: Date.now() + 30_000 })).resolves.toEqual([
      0,
      expect.any(Number),
    ]);
  });

  test('refuses while the data is younger than the guard, and says how long that lasts (S12)', async () => {
    const [outcome, wait] = await acquire(['k'], 'mine', { guard: 10_000 });
    expect(outcome).toBe(TOO_YOUNG);
    expect(wait).toBeGreaterThan(5_000);
    await expect(redis.keys('*')).resolves.toEqual(['born']);
    await redis.set('born', String(Date.now() - 10_001));
    await expect(acquire(['k'], 'mine', { guard: 10_000 })).resolves.toEqual([0, expect.any(Number)]);
  });

  test('starts a missing counter where it is told, but not behind the clock and not far ahead of it', async () => {
    const soon = counterAt(Date.now() + AHEAD);
    await expect(acquire(['a'], 'mine', { seed: soon })).resolves.toEqual([0, soon]);
    const [, behind] = await acquire(['b'], 'mine', { seed: 5 });
    expect(behind).toBeGreaterThan(counterAt(Date.now() - 10_000));
    const [, ahead] = await acquire(['c'], 'mine', { seed: 2 ** 52 });
    expect(ahead).toBeLessThan(counterAt(Date.now() + 3_000));
  });

  test('on a single node follows the clock and nothing else, so that tokens increase after a loss of data', async () => {
    const before = Date.now();
    const [, counter] = await acquire(['k'], 'mine');
    expect(counter).toBeGreaterThan(counterAt(before - 1_000));
    expect(counter).toBeLessThan(counterAt(Date.now() + 1_000));
  });

  test('does not grant again what is stored in part only', async () => {
    await acquire(['a', 'b'], 'mine');
    await redis.del('b:l');
    await expect(acquire(['a', 'b'], 'mine')).rejects.toThrow('a part of it is gone');
    await redis.del('a:f');
    await expect(acquire(['a'], 'mine')).rejects.toThrow('a part of it is gone');
  });

  test('begins the guard anew when the marker is from the future, of a clock that was set back (S12)', async () => {
    await redis.set('born', String(Date.now() + 3_600_000));
    const [outcome, wait] = await acquire(['k'], 'mine', { guard: 10_000 });
    expect(outcome).toBe(TOO_YOUNG);
    expect(wait).toBeLessThanOrEqual(10_000);
  });

  test('counts up by one within a second when it is coarse, so that nodes agree', async () => {
    const ahead = counterAt(Date.now() + AHEAD);
    const answers = [
      acquire(['k'], 'a', { seed: ahead }),
      redis.del('k:l'),
      acquire(['k'], 'b', { seed: 1 }),
    ];
    await expect(Promise.all(answers)).resolves.toEqual([[0, ahead], 1, [0, ahead + 1]]);
  });

  test('counts from the largest of its keys, and all of them have the result', async () => {
    const ahead = counterAt(Date.now() + AHEAD);
    const answers = [acquire(['b'], 'x', { seed: ahead }), redis.del('b:l'), acquire(['a', 'b', 'c'], 'y')];
    await expect(Promise.all(answers)).resolves.toEqual([[0, ahead], 1, [0, ahead + 1]]);
    await expect(redis.mget('a:f', 'b:f', 'c:f')).resolves.toEqual(
      Array.from({ length: 3 }, () => String(ahead + 1)),
    );
  });

  test('writes large counters as whole numbers, which Lua would not do by itself', async () => {
    await redis.set('k:f', '9007199254740000');
    await expect(acquire(['k'], 'mine')).resolves.toEqual([0, 9007199254740001]);
    await expect(redis.get('k:f')).resolves.toBe('9007199254740001');
  });

  test('refuses to count beyond what a JavaScript number can hold', async () => {
    await redis.set('k:f', '9007199254740991');
    await expect(acquire(['k'], 'mine')).rejects.toThrow('fencing counter out of range');
    await expect(redis.exists('k:l')).resolves.toBe(0);
  });
});

describe('BIRTH', () => {
  test('leaves the marker once and tells the time (S12, S16)', async () => {
    const micros = (await redis.eval(BIRTH.lua, 1, 'born')) as number;
    expect(Math.abs(micros / 1_000 - Date.now())).toBeLessThan(10_000);
    const marker = await redis.get('born');
    expect(Math.abs(Number(marker) - micros / 1_000)).toBeLessThan(1);
    await redis.eval(BIRTH.lua, 1, 'born');
    await expect(redis.get('born')).resolves.toBe(marker);
  });
});

describe('RAISE', () => {
  test('lifts the counters of keys that hold the claim', async () => {
    const [, counter] = await acquire(['a', 'b'], 'mine');
    await expect(onLocks(RAISE, ['a', 'b'], 'mine', Number(counter) + 5, DAY)).resolves.toBe(1);
    await expect(redis.mget('a:f', 'b:f')).resolves.toEqual([
      String(Number(counter) + 5),
      String(Number(counter) + 5),
    ]);
  });

  test('refuses when the claim is gone, or a counter is beyond the token, and touches nothing', async () => {
    const [, counter] = await acquire(['a', 'b'], 'mine');
    const token = Number(counter);
    await expect(onLocks(RAISE, ['a', 'b'], 'theirs', token + 5, DAY)).resolves.toBe(0);
    await redis.set('b:f', String(token + 9));
    await expect(onLocks(RAISE, ['a', 'b'], 'mine', token + 5, DAY)).resolves.toBe(0);
    await redis.del('b:l');
    await expect(onLocks(RAISE, ['a', 'b'], 'mine', token + 20, DAY)).resolves.toBe(0);
    await expect(redis.mget('a:f', 'b:f')).resolves.toEqual([String(token), String(token + 9)]);
  });
});

describe('EXTEND', () => {
  test('lengthens the keys that hold the value, and keeps their counters', async () => {
    await acquire(['a', 'b'], 'mine', { ttl: 5_000 });
    await redis.pexpire('a:f', 5_000);
    await expect(extend(9_000, [['a', 'b'], 'mine'])).resolves.toBe('1');
    expect(await redis.pttl('a:l')).toBeGreaterThan(5_500);
    expect(await redis.pttl('b:l')).toBeGreaterThan(5_500);
    expect(await redis.pttl('a:f')).toBeGreaterThan(DAY - 10_000);
  });

  test('touches nothing when one key is missing or holds another value (S9)', async () => {
    await redis.set('a:l', 'mine', 'PX', 5_000);
    await redis.set('b:l', 'theirs', 'PX', 5_000);
    await expect(extend(9_000, [['a', 'b'], 'mine'])).resolves.toBe('0');
    await expect(extend(9_000, [['a', 'gone'], 'mine'])).resolves.toBe('0');
    expect(await redis.pttl('a:l')).toBeLessThan(5_001);
    expect(await redis.pttl('b:l')).toBeLessThan(5_001);
  });

  test('never shortens a life', async () => {
    await redis.set('a:l', 'mine', 'PX', 9_000);
    await expect(extend(100, [['a'], 'mine'])).resolves.toBe('1');
    expect(await redis.pttl('a:l')).toBeGreaterThan(5_500);
  });

  test('decides on each of several claims by its own keys and value (S9)', async () => {
    await acquire(['a', 'b'], 'first', { ttl: 5_000 });
    await acquire(['c'], 'theirs', { ttl: 5_000 });
    await acquire(['d', 'e', 'f'], 'third', { ttl: 5_000 });
    const claims: [string[], string][] = [
      [['a', 'b'], 'first'],
      [['c'], 'second'],
      [['d', 'e', 'f'], 'third'],
      [['gone'], 'fourth'],
    ];
    await expect(extend(9_000, ...claims)).resolves.toBe('1010');
    for (const key of 'abdef') {
      expect(await redis.pttl(`${key}:l`)).toBeGreaterThan(5_500);
      expect(await redis.pttl(`${key}:f`)).toBeGreaterThan(DAY - 10_000);
    }
    expect(await redis.pttl('c:l')).toBeLessThan(5_001);
  });

  test('a key of another type is not held, and does not keep other claims from being extended', async () => {
    await redis.rpush('a:l', 'not a lock');
    await acquire(['b'], 'mine', { ttl: 5_000 });
    await expect(extend(9_000, [['a'], 'mine'], [['b'], 'mine'])).resolves.toBe('01');
    expect(await redis.pttl('b:l')).toBeGreaterThan(5_500);
  });
});

describe('RELEASE', () => {
  test('deletes what holds the value and nothing else (S7)', async () => {
    await redis.mset('a:l', 'mine', 'b:l', 'theirs');
    await expect(release(['a', 'b', 'gone'], 'mine')).resolves.toBe(0);
    await expect(redis.mget('a:l', 'b:l')).resolves.toEqual([null, 'theirs']);
    await release(['a', 'b', 'gone'], 'mine');
    await expect(redis.keys('*')).resolves.toEqual(['b:l']);
  });

  test('remembers the tick that ran, unless a later one is known, whoever holds the key (oncePerTick)', async () => {
    await redis.set('a:l', 'theirs');
    const remember = (tick: string): Promise<unknown> =>
      redis.eval(RELEASE.lua, 3, 'a:l', 'a:q', 'ticks', 'wake:', 'mine', '1 0 0 30000', tick);
    await remember('1700000000000:me');
    await remember('1600000000000:late');
    await expect(redis.mget('a:l', 'ticks')).resolves.toEqual(['theirs', '1700000000000:me']);
    await remember('1800000000000:next');
    await expect(redis.get('ticks')).resolves.toBe('1800000000000:next');
    expect(await redis.pttl('ticks')).toBeGreaterThan(20_000);
    expect(await redis.pttl('ticks')).toBeLessThanOrEqual(30_000);
  });

  test('keeps what holds the value for the rest of minHold, longer or shorter than it would live, and nothing else', async () => {
    await redis.set('long:l', 'mine', 'PX', 60_000);
    await redis.set('short:l', 'mine', 'PX', 10_000);
    await redis.set('b:l', 'theirs', 'PX', 60_000);
    await release(['long', 'short', 'b', 'gone'], 'mine', { keep: 30_000 });
    for (const key of ['long:l', 'short:l']) {
      expect(await redis.pttl(key)).toBeLessThanOrEqual(30_000);
      expect(await redis.pttl(key)).toBeGreaterThan(20_000);
    }
    expect(await redis.pttl('b:l')).toBeGreaterThan(50_000);
    await expect(redis.exists('gone:l')).resolves.toBe(0);
  });
});

describe('the queue of a key', () => {
  /** A process that listens, and what it is told. */
  interface Listener {
    readonly channel: string;
    readonly place: string;
    readonly told: string[];
    readonly stop: () => void;
  }

  async function listener(process: string): Promise<Listener> {
    const told: string[] = [];
    const client = server.client();
    const channel = `wake:${process}`;
    await client.subscribe(channel);
    client.on('message', (_channel, text) => told.push(text));
    return { channel, place: `${process}:1:${process}`, told, stop: () => client.disconnect() };
  }

  /** All that they were told since the last time; what is on its way may come to one of them later than to another. */
  async function toldTo(all: readonly Listener[]): Promise<string[][]> {
    for (const { channel } of all) await redis.publish(channel, 'that is all');
    await until(() => all.every(({ told }) => told.includes('that is all')));
    return all.map(({ told }) => told.splice(0).slice(0, -1));
  }

  /** Sends commands in one write: a turn is short, and this process can be kept from working between two. */
  function together<T extends readonly unknown[] | []>(send: () => T) {
    redis.stream.cork();
    try {
      return Promise.all(send());
    } finally {
      redis.stream.uncork();
    }
  }

  /** What the queue says of order, without the turn and without who was told. */
  function queue(key: string): Promise<string[]> {
    return redis.zrangebyscore(`${key}:q`, 0, 1e13);
  }

  test('has those who were refused in the order in which they came, whenever they asked', async () => {
    await acquire(['k'], 'holder');
    await acquire(['k'], 'x', { order: { place: 'aa:1:late', waited: 10 } });
    await acquire(['k'], 'x', { order: { place: 'bb:1:early', waited: 5_000 } });
    await acquire(['k'], 'x', { order: { place: 'cc:1:last', waited: 0 } });
    await acquire(['k'], 'x', { order: { waited: 9_000 } });
    await expect(queue('k')).resolves.toEqual(['bb:1:early', 'aa:1:late', 'cc:1:last']);
    expect(await redis.pttl('k:q')).toBeGreaterThan(50_000);
  });

  test('is told of a release in order: the first at once, the next two in case it does not react', async () => {
    const all = await Promise.all(['aa', 'bb', 'cc', 'dd'].map(listener));
    await acquire(['k'], 'holder', { ttl: 5_000 });
    for (const [index, { place }] of all.entries()) {
      await acquire(['k'], 'x', { order: { place, waited: 900 - index * 100 } });
    }
    await expect(release(['k'], 'holder')).resolves.toBe(3);
    expect(await toldTo(all)).toEqual([['1 0 holder'], ['1 200 holder'], ['1 200 holder'], []]);
    for (const { stop } of all) stop();
  });

  test('does not tell again who will try soon after the next turn, and tells those who will not', async () => {
    const all = await Promise.all(['aa', 'bb', 'cc', 'dd'].map(listener));
    const [first, second] = all;
    const serverTime = async (): Promise<number> => {
      const [seconds, micros] = await redis.time();
      return Number(seconds) * 1_000 + Number(micros) / 1_000;
    };
    /** Two turns, sent together; how long that took by the clock of the server. */
    const twoTurns = async (): Promise<number> => {
      for (const [index, { place }] of all.entries()) {
        await acquire(['k'], 'x', { order: { place, waited: 900 - index * 100 } });
      }
      const [began, , , , ended] = await together(() => [
        serverTime(),
        release(['k'], 'one'),
        acquire(['k'], 'two', { order: { place: first!.place, waited: 1_000 } }),
        release(['k'], 'two'),
        serverTime(),
      ]);
      return ended - began;
    };

    // The server can be kept from working between the two.
    for (;;) {
      await acquire(['k'], 'one', { ttl: 5_000 });
      const took = await twoTurns();
      const heard = await toldTo(all);
      for (const { place } of all) await leave(['k'], place);
      // Who leaves tells the next.
      await toldTo(all);
      if (took > 40) continue;
      expect(heard).toEqual([['1 0 one'], ['1 200 one', '1 0 two'], ['1 200 one'], ['1 200 two']]);
      break;
    }

    await acquire(['k'], 'one', { ttl: 5_000 });
    await twoTurns();
    await toldTo(all);
    await acquire(['k'], 'three', { order: { place: second!.place, waited: 1_000 } });
    // What they were told has passed by then.
    await delay(60);
    await release(['k'], 'three');
    expect(await toldTo(all)).toEqual([[], [], ['1 0 three'], ['1 200 three']]);
    for (const { place, stop } of all) {
      await leave(['k'], place);
      stop();
    }
    await expect(redis.keys('*')).resolves.toEqual(['k:f']);
  });

  test('drops those whose process has gone, and tells the next at once', async () => {
    const alive = await listener('bb');
    await acquire(['k'], 'holder', { ttl: 5_000 });
    await acquire(['k'], 'x', { order: { place: 'aa:1:gone', waited: 900 } });
    await acquire(['k'], 'x', { order: { place: alive.place, waited: 100 } });
    await expect(release(['k'], 'holder')).resolves.toBe(1);
    await until(() => alive.told.length === 1);
    expect(alive.told).toEqual(['1 0 holder']);
    await expect(queue('k')).resolves.toEqual([alive.place]);
    alive.stop();
  });

  test('keeps others from passing the one whose turn it is, for a while; then its place is lost', async () => {
    const first = await listener('aa');
    const second = await listener('bb');
    await acquire(['k'], 'holder', { ttl: 5_000 });
    await acquire(['k'], 'x', { order: { place: first.place, waited: 900 } });
    await acquire(['k'], 'x', { order: { place: second.place, waited: 500 } });
    const [, next, passing] = await together(() => [
      release(['k'], 'holder'),
      acquire(['k'], 'x', { order: { place: second.place, waited: 500 } }),
      acquire(['k'], 'passing', { order: { waited: 0 } }),
    ]);
    expect(next).toEqual([TURN_OF_ANOTHER, first.place, expect.any(Number)]);
    expect(next[2]).toBeLessThanOrEqual(150);
    expect(passing).toEqual([TURN_OF_ANOTHER, first.place, expect.any(Number)]);
    await until(async () => {
      const [outcome] = await acquire(['k'], 'second', { order: { place: second.place, waited: 600 } });
      return outcome === 0;
    });
    await expect(redis.exists('k:q')).resolves.toBe(0);
    first.stop();
    second.stop();
  });

  test('lets the one whose turn it is acquire, who leaves it; nothing remains', async () => {
    const first = await listener('aa');
    await acquire(['k'], 'holder', { ttl: 5_000 });
    await acquire(['k'], 'x', { order: { place: first.place, waited: 900 } });
    const [, granted] = await Promise.all([
      release(['k'], 'holder'),
      acquire(['k'], 'mine', { order: { place: first.place, waited: 950 } }),
    ]);
    expect(granted[0]).toBe(0);
    await release(['k'], 'mine');
    await expect(redis.keys('*')).resolves.toEqual(['k:f']);
    first.stop();
  });

  test('begins a turn when the last holder lapsed, so that nobody was told', async () => {
    const first = await listener('aa');
    await acquire(['k'], 'holder', { ttl: 5_000 });
    await acquire(['k'], 'x', { order: { place: first.place, waited: 900 } });
    await redis.pexpire('k:l', 1);
    await until(async () => (await redis.exists('k:l')) === 0);
    const [code] = await acquire(['k'], 'passing', { order: { waited: 0 } });
    expect(code).toBe(TURN_OF_ANOTHER);
    await until(() => first.told.length === 1);
    first.stop();
  });

  test('has the next waiter of the process in line as soon as the one before is granted, and says if it is first', async () => {
    const grant = await acquire(['k'], 'mine', { order: { place: 'aa:1:me', waited: 50_000, next: 40_000 } });
    expect(grant).toEqual([0, expect.any(Number), 2]);
    await expect(queue('k')).resolves.toEqual(['aa:1:me']);
    await acquire(['k'], 'x', { order: { place: 'bb:1:other', waited: 45_000 } });
    await redis.del('k:l');
    const again = await acquire(['k'], 'mine', { order: { place: 'aa:1:me', waited: 50_000, next: 40_000 } });
    expect(again).toEqual([0, expect.any(Number), 1]);
    await expect(queue('k')).resolves.toEqual(['bb:1:other', 'aa:1:me']);
  });

  test('passes the turn on when a place is given up', async () => {
    const second = await listener('bb');
    const first = await listener('aa');
    await acquire(['k'], 'holder', { ttl: 5_000 });
    await acquire(['k'], 'x', { order: { place: first.place, waited: 900 } });
    await acquire(['k'], 'x', { order: { place: second.place, waited: 500 } });
    await release(['k'], 'holder');
    await until(() => second.told.length === 1);
    await leave(['k'], first.place);
    await until(() => second.told.length === 2);
    expect(second.told).toEqual(['1 200 holder', '1 0 ']);
    await leave(['k'], second.place);
    await expect(redis.keys('*')).resolves.toEqual(['k:f']);
    first.stop();
    second.stop();
  });

  test('has a waiter for several keys at one key only, and the others are passed on', async () => {
    const other = await listener('bb');
    await acquire(['b'], 'holder', { ttl: 5_000 });
    await acquire(['a', 'b'], 'x', { order: { place: 'aa:1:both', waited: 900 } });
    await expect(queue('b')).resolves.toEqual(['aa:1:both']);
    await acquire(['a'], 'other', { ttl: 5_000 });
    await release(['b'], 'holder');
    await acquire(['a', 'b'], 'x', { order: { place: 'aa:1:both', waited: 900 } });
    await expect(queue('a')).resolves.toEqual(['aa:1:both']);
    await expect(redis.exists('b:q')).resolves.toBe(0);
    other.stop();
  });

  test('is not entered by a request that comes too late (S16)', async () => {
    await acquire(['k'], 'holder', { ttl: 5_000 });
    await acquire(['k'], 'x', { deadline: Date.now() - 100, order: { place: 'aa:1:me', waited: 0 } });
    await expect(redis.exists('k:q')).resolves.toBe(0);
  });

  test('tells when the keys end that minHold keeps', async () => {
    const first = await listener('aa');
    await acquire(['k'], 'holder', { ttl: 5_000 });
    await acquire(['k'], 'x', { order: { place: first.place, waited: 900 } });
    await release(['k'], 'holder', { keep: 700 });
    await until(() => first.told.length === 1);
    expect(first.told).toEqual(['1 700 holder']);
    first.stop();
  });

  test('is no obstacle for a user who may not publish: the lock is deleted first (S7)', async () => {
    await redis.call('ACL', 'SETUSER', 'mute', 'on', '>secret', '~*', '+@all', 'resetchannels');
    const mute = server.client({ username: 'mute', password: 'secret' });
    await acquire(['k'], 'holder', { ttl: 5_000 });
    await acquire(['k'], 'x', { order: { place: 'aa:1:me', waited: 0 } });
    await expect(mute.eval(RELEASE.lua, 2, 'k:l', 'k:q', 'wake:', 'holder', 1, '')).resolves.toEqual([1]);
    await expect(redis.exists('k:l')).resolves.toBe(0);
    await expect(queue('k')).resolves.toEqual(['aa:1:me']);
    await redis.call('ACL', 'DELUSER', 'mute');
  });
});

describe('several claims in one command', () => {
  const numbers = (n: number, ...rest: (number | string)[]): string =>
    [n, 5_000, DAY, ...(rest.length > 0 ? rest : [0, 0, 0, 1, '-'])].join(' ');

  test('each is granted or refused for itself, whatever keys it has and whatever becomes of the others', async () => {
    await redis.set('b:l', 'theirs', 'PX', 70_000);
    await redis.lpush('list:l', 'of another type');
    const keys = [
      ['a:l', 'a:f', 'a:q'],
      ['b:l', 'b:f', 'b:q'],
      ['list:l', 'list:f', 'list:q'],
      ['c:l', 'd:l', 'c:f', 'd:f', 'c:q', 'd:q'],
      ['young:l', 'young:f', 'born'],
      ['late:l', 'late:f'],
      ['tick:l', 'tick:f', 'tick:q', 'ran'],
      ['z:l', 'z:f'],
    ];
    const args = [
      ['one', numbers(1), ''],
      ['two', numbers(1), '12.5 - aa:1:me'],
      ['three', numbers(1), ''],
      ['four', numbers(2), ''],
      ['five', numbers(1, 0, 600_000, 0, 0, '-'), ''],
      ['six', numbers(1, 1_000, 0, 0, 0, '-'), ''],
      ['seven', numbers(1, 0, 0, 0, 1, 1_700_000_000_000), ''],
      ['eight', numbers(1, 0, 0, 0, 0, '-'), ''],
    ];
    await redis.set('ran', '1800000000000:me');
    const all = keys.flat();

    const answers = (await redis.eval(ACQUIRE.lua, all.length, ...all, 'wake:', ...args.flat())) as unknown[];

    expect(answers).toHaveLength(keys.length + 1);
    const [a, b, list, cd, young, late, tick, z] = answers;
    expect([a, cd, z]).toEqual([expect.any(Number), expect.any(Number), expect.any(Number)]);
    expect(b).toEqual([1, 'theirs', expect.any(Number)]);
    expect(list).toMatchObject({ name: 'ReplyError', message: expect.stringMatching(/^WRONGTYPE/) });
    expect([young, late]).toEqual([
      [-2, 600_000],
      [-1, expect.any(Number)],
    ]);
    expect(tick).toEqual([-3, '1800000000000:me', -1]);
    await expect(
      redis.mget('a:l', 'b:l', 'c:l', 'd:l', 'young:l', 'late:l', 'tick:l', 'z:l'),
    ).resolves.toEqual(['one', 'theirs', 'four', 'four', null, null, null, 'eight']);
    await expect(redis.mget('a:f', 'c:f', 'd:f', 'z:f')).resolves.toEqual([a, cd, cd, z].map(String));
    await expect(redis.zrange('b:q', 0, -1)).resolves.toEqual(['aa:1:me']);
  });

  test('each is released for itself, and an error with one of them is no matter for the others', async () => {
    await redis.mset('a:l', 'one', 'b:l', 'theirs', 'c:l', 'three', 'd:l', 'three', 'e:l', 'four');
    await redis.lpush('list:l', 'of another type');
    const keys = [
      'a:l',
      'a:q',
      'ran',
      'b:l',
      'b:q',
      'list:l',
      'list:q',
      'c:l',
      'd:l',
      'c:q',
      'd:q',
      'e:l',
      'e:q',
    ];
    const args = [
      ['one', '1 0 0 9000', '1700000000000:me'],
      ['two', '1', ''],
      ['list', '1 0 0 -', ''],
      ['three', '2', ''],
      ['four', '1 7000 0 -', ''],
    ];

    const answers = await redis.eval(RELEASE.lua, keys.length, ...keys, 'wake:', ...args.flat());

    const error = expect.objectContaining({ name: 'ReplyError' }) as unknown;
    expect(answers).toEqual([0, 0, error, 0, 0]);
    await expect(redis.mget('a:l', 'b:l', 'c:l', 'd:l', 'e:l', 'ran')).resolves.toEqual([
      null,
      'theirs',
      null,
      null,
      'four',
      '1700000000000:me',
    ]);
    expect(await redis.pttl('e:l')).toBeLessThanOrEqual(7_000);
  });
});
