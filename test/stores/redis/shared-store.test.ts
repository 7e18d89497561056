import { tokenAt } from '../../../lib/core/fencing-token.js';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { Lease } from '../../../lib/core/lease.js';
import { EXCLUSIVE, SHARED } from '../../../lib/core/lock-mode.js';
import type { AcquireReply, AcquireRequest, HeldKey } from '../../../lib/core/ports.js';
import type { RedisStore } from '../../../lib/stores/redis/redis-store.js';
import { HOLD_BACK } from '../../../lib/stores/redis/scripts/hold-back.js';
import { LEAVE } from '../../../lib/stores/redis/scripts/leave.js';
import { LET_PASS } from '../../../lib/stores/redis/scripts/let-pass.js';
import type { Script } from '../../../lib/stores/redis/scripts/script.js';
import { acquireOn, extendOn, releaseOn } from '../../support/ask-store.js';
import { nodesTo } from '../../support/core.js';
import { type RedisServer, startRedis } from '../../support/redis-server.js';

const TTL = 60_000;

let server: RedisServer;
let redis: Redis;
let store: RedisStore;

beforeAll(async () => {
  server = await startRedis();
  redis = server.client();
  [store] = nodesTo([server.url]) as [RedisStore];
  await store.connect();
});
afterAll(async () => {
  await store.close();
  await server.stop();
});
beforeEach(() => redis.flushall());

function leaseOf(kind: 'shared' | 'exclusive', key = 'k'): Lease {
  return new Lease([key], 'me', TTL, undefined, kind === 'shared' ? SHARED : EXCLUSIVE);
}

/** The answers to the requests of one call, in the order of the requests. */
function answers<Reply>(
  count: number,
  ask: (tell: (index: number, reply: Reply | Error) => void) => void,
): Promise<(Reply | Error)[]> {
  return new Promise((resolve) => {
    const replies: (Reply | Error)[] = [];
    let missing = count;
    ask((index, reply) => {
      expect(replies[index]).toBeUndefined();
      replies[index] = reply;
      if (--missing === 0) resolve(replies);
    });
  });
}

function acquireAll(leases: readonly Lease[]): Promise<(AcquireReply | Error)[]> {
  const terms = { since: Date.now(), limit: 60_000, guard: 0, proposal: 0, position: undefined };
  const requests = leases.map((lease): AcquireRequest => ({ ...terms, lease }));
  return answers(leases.length, (tell) => store.acquire(requests, false, tell));
}

test('a store sends one command for each lock mode, and returns the answers in the order of the requests', async () => {
  const modes = ['exclusive', 'shared', 'shared', 'exclusive', 'shared'] as const;
  const leases = modes.map((mode, index) => leaseOf(mode, mode === 'shared' ? 'shared' : `own ${index}`));
  await acquireAll(leases);
  await redis.config('RESETSTAT');
  const others = [leaseOf('exclusive', 'shared'), leaseOf('shared', 'own 0'), leaseOf('shared', 'shared')];
  const [writer, reader, joining] = (await acquireAll(others)) as Extract<AcquireReply, { granted: false }>[];
  expect(writer).toMatchObject({ granted: false, holder: { mode: 'shared' } });
  expect(reader).toMatchObject({ granted: false, holder: { id: leases[0]!.id, mode: 'exclusive' } });
  expect(joining).toMatchObject({ granted: true });
  const all = [...leases, ...others];
  await expect(answers(all.length, (tell) => store.extend(all, TTL, tell))).resolves.toEqual([
    true,
    true,
    true,
    true,
    true,
    false,
    false,
    true,
  ]);
  const requests = leases.map((lease) => ({ lease, pause: 0 }));
  await answers(leases.length, (tell) => store.release(requests, tell));
  expect(await redis.info('commandstats')).toMatch(/cmdstat_evalsha:calls=6,/);
  const [own, shared] = (await store.read(['own 0', 'shared'])) as [undefined, HeldKey];
  expect(own).toBeUndefined();
  expect(shared.holders.map(({ id }) => id)).toEqual([others[2]!.id]);
});

test('shared locks also work if `SCRIPT FLUSH` runs before each command', async () => {
  const [one, other] = [leaseOf('shared'), leaseOf('shared')];
  await redis.script('FLUSH');
  await expect(acquireOn(store, one)).resolves.toMatchObject({ granted: true });
  await redis.script('FLUSH');
  await expect(acquireOn(store, other)).resolves.toMatchObject({ granted: true });
  await redis.script('FLUSH');
  await expect(extendOn(store, one, 2 * TTL)).resolves.toBe(true);
  await redis.script('FLUSH');
  await expect(store.raise(one, tokenAt(Date.now() + 1_000))).resolves.toBe(true);
  await redis.script('FLUSH');
  await releaseOn(store, one);
  await expect(store.read(['k'])).resolves.toMatchObject([{ holders: [{ id: other.id }] }]);
});

describe('a server that knows only one of the scripts that set and remove marks', () => {
  const waiter = {
    keys: ['k'],
    mode: 'exclusive',
    process: 'a'.repeat(16),
    number: 1,
    owner: 'them',
  } as const;
  const hasMark = async (): Promise<boolean> => (await redis.exists('lock:{k}:w')) === 1;

  /** Makes this script the only one that the server knows. */
  async function knows({ lua }: Script): Promise<void> {
    await redis.script('FLUSH');
    await redis.script('LOAD', lua);
  }

  test.each<[string, Script, 'letPass' | 'leave']>([
    ['removes the mark', LET_PASS, 'letPass'],
    ['leaves the queue', LEAVE, 'leave'],
  ])(
    'no mark remains when a waiter sets its mark and then %s, though Redis must first load the script that sets marks',
    async (_name, known, end) => {
      await knows(known);
      await Promise.all([store.holdBack(waiter, 100), store[end](waiter)]);
      expect(await hasMark()).toBe(false);
    },
  );

  test('the mark of a waiter is set when the waiter removes it and then sets it again, though Redis must first load the script that removes marks', async () => {
    await store.holdBack(waiter, 100);
    await knows(HOLD_BACK);
    await Promise.all([store.letPass(waiter), store.holdBack(waiter, 100)]);
    expect(await hasMark()).toBe(true);
  });
});

test('a lock with several readers appears only once in a list of locks', async () => {
  for (let index = 0; index < 3; index++) await acquireOn(store, leaseOf('shared', 'listed'));
  const keys: string[] = [];
  for await (const page of store.scan('')) keys.push(...page);
  expect(keys).toEqual(['listed']);
});
