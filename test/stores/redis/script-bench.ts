import { afterAll, beforeAll, beforeEach, expect } from '@jest/globals';
import type { Redis } from 'ioredis';
import { tokenAt } from '../../../lib/core/fencing-token.js';
import type { Lease } from '../../../lib/core/lease.js';
import type { LockMode } from '../../../lib/core/lock-mode.js';
import type { AcquireRequest, SlotWish } from '../../../lib/core/ports.js';
import type { WaiterId } from '../../../lib/core/waiter-id.js';
import { channelBase, markerKey, queueKey, recordKey } from '../../../lib/stores/redis/lock-key.js';
import { waiterName } from '../../../lib/stores/redis/record.js';
import { acquireAnswers } from '../../../lib/stores/redis/scripts/acquire-answer.js';
import type { Script } from '../../../lib/stores/redis/scripts/script.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';
import { until } from '../../support/until.js';

// The server, and the functions, of the tests of Lua scripts. Each test file that imports this one gets a server of its
// own, which is empty before each test.

export const PREFIX = 'lock:';
export const BASE = channelBase(PREFIX);
/** Redis key of the node's marker: the time since which the node has its data, and its largest token. */
export const MARKER = markerKey(PREFIX);

/** Milliseconds; longer than a test takes on a busy machine. */
export const TTL = 60_000;

/** Longest time that a test takes between two commands, in milliseconds. */
export const PATIENCE = 30_000;

export const FOREIGN = 'the key has a value that is not a lock of this package';
export const ENDED = 'this lock was stored before, and has ended';

export let server: RedisServer;
export let redis: Redis;

beforeAll(async () => {
  server = await startRedis();
  redis = server.client();
});
afterAll(() => server.stop());
beforeEach(() => redis.flushall());

/** Runs `body` with another server, to which `redis` is then connected. */
export async function onOwnServer(body: (own: RedisServer) => Promise<void>): Promise<void> {
  const own = await startRedis();
  const shared = redis;
  redis = own.client();
  try {
    await body(own);
  } finally {
    redis = shared;
    await own.stop();
  }
}

export type Packed = readonly (string | number)[];
export type Answer = string | number | readonly unknown[] | Error;

export function run({ lua }: Script, [count, ...rest]: Packed, client = redis): Promise<unknown> {
  return client.eval(lua, count as number, ...rest);
}

export interface Terms {
  /** Milliseconds from now. */
  readonly deadline?: number;
  readonly guard?: number;
  readonly proposal?: number;
  /** `true` if the node has a marker; a node with a restart guard always has a marker. */
  readonly marked?: boolean;
  readonly ordered?: boolean;
  readonly waiter?: WaiterId;
  /**
   * Seconds that the waiter has waited; the longest wait is first in the queue. Tests use times so far apart that the
   * delays of a busy machine do not change the order.
   */
  readonly waited?: number;
  /** Seconds that the next waiter of the process has waited. */
  readonly next?: number;
  readonly wish?: SlotWish;
  /** `true` for leases that heal; `proposal` is then their token. */
  readonly heals?: boolean;
}

export function requestFor(
  lease: Lease,
  { guard = 0, proposal = 0, waiter, waited = 0, next, wish, heals }: Terms = {},
): AcquireRequest {
  const position = waiter && { waiter, waited: waited * 1_000, next: next && next * 1_000 };
  return { lease, since: Date.now(), limit: 1_000, guard, proposal, position, wish, heals };
}

/** Describes the command of these requests, for the function that packs its arguments. */
export function commandFor(requests: readonly AcquireRequest[], terms: Terms) {
  const { deadline = PATIENCE, guard = 0, marked = guard > 0 } = terms;
  return {
    keyPrefix: PREFIX,
    base: BASE,
    ordered: terms.ordered ?? requests.some(({ position }) => position),
    marker: marked ? MARKER : undefined,
    identity: undefined,
    wall: Date.now(),
    deadline: Date.now() + deadline,
    guard,
  };
}

/** Runs an acquire script once for these requests; returns the answers, without the time on the server's clock. */
export async function answersTo(
  requests: readonly AcquireRequest[],
  script: Script,
  packed: Packed,
): Promise<Answer[]> {
  const answers = [...acquireAnswers(await run(script, packed), requests)] as Answer[];
  expect(answers).toHaveLength(requests.length + 1);
  expect(Math.abs(Number(answers.pop()) / 1_000 - Date.now())).toBeLessThan(PATIENCE);
  return answers;
}

export function recordOf(key = 'k'): Promise<string | null> {
  return redis.get(recordKey(PREFIX, key));
}

/** The first two characters of a record: its state, and `w` while somebody waits. */
export async function stateOf(key = 'k'): Promise<string | undefined> {
  return (await recordOf(key))?.slice(0, 2);
}

export async function tokenOf(key = 'k'): Promise<number> {
  return Number((await recordOf(key))!.slice(2, 18));
}

/** Expects a duration to be `expected` milliseconds, or a little less. */
export function expectAbout(actual: number, expected: number): void {
  expect(actual).toBeLessThanOrEqual(expected);
  expect(actual).toBeGreaterThan(expected - PATIENCE);
}

/** Runs `body` while the server is out of memory. */
export async function withoutMemory(body: () => Promise<void>): Promise<void> {
  await redis.config('SET', 'maxmemory', '1');
  try {
    await body();
  } finally {
    await redis.config('SET', 'maxmemory', '0');
  }
}

/** The token that the clock will give after this time; the default is longer than a test takes. */
export function tokenAhead(milliseconds = 3_600_000): number {
  return tokenAt(Date.now() + milliseconds);
}

/** Sends commands in one write. Between two writes this process could stall for longer than the turn of a waiter. */
export function together<T extends readonly unknown[] | []>(send: () => T) {
  redis.stream.cork();
  try {
    return Promise.all(send());
  } finally {
    redis.stream.uncork();
  }
}

/** All keys in Redis, with their values and the times at which they expire. */
export async function snapshot(): Promise<unknown> {
  const keys = (await redis.keys('*')).toSorted();
  return Promise.all(
    keys.map(async (key) => [key, await redis.dump(key), await redis.call('PEXPIRETIME', key)]),
  );
}

export function waiterIn(mode: LockMode, letter: string, ...keys: readonly string[]): WaiterId {
  return {
    keys: keys.length > 0 ? keys : ['k'],
    mode,
    process: letter.repeat(16),
    number: 1,
    owner: `host:${letter}`,
  };
}

/** A process that listens, with the messages that it received. */
export interface Listener {
  readonly channel: string;
  readonly waiter: WaiterId;
  readonly name: string;
  readonly told: string[];
  readonly stop: () => void;
}

export async function listen(waiter: WaiterId): Promise<Listener> {
  const told: string[] = [];
  const client = server.client();
  const channel = `${BASE}${waiter.process}`;
  await client.subscribe(channel);
  client.on('message', (_channel, text) => told.push(text));
  return { channel, waiter, name: waiterName(waiter), told, stop: () => client.disconnect() };
}

/**
 * For each listener, its messages since the last call. Sends and awaits a last message, because earlier messages may
 * still be under way.
 */
export async function toldTo(all: readonly Listener[]): Promise<string[][]> {
  for (const { channel } of all) await redis.publish(channel, 'that is all');
  await until(() => all.every(({ told }) => told.includes('that is all')));
  return all.map(({ told }) => told.splice(0).slice(0, -1));
}

/** The waiters in their order, without the entries for the turn and for the stand-bys (the next two waiters). */
export function queue(key = 'k'): Promise<string[]> {
  return redis.zrangebyscore(queueKey(PREFIX, key), 0, 1e13);
}
