import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { EXCLUSIVE, type LockKind, type LockMode, SHARED } from '../../lib/core/lock-mode.js';
import type { WaiterId } from '../../lib/core/waiter-id.js';
import type { AcquireTerms, Redlock } from '../../lib/redlock/redlock.js';
import type { RedisStore } from '../../lib/stores/redis/redis-store.js';
import { nodesTo, redlockOver } from '../support/core.js';
import { type RedisServer, startRedisNodes } from '../support/redis-server.js';
import { until } from '../support/until.js';

// A waiter stores a mark on each node. The node then refuses later readers and later callers for a permit, unless they
// have the waiter's mode (S22). On each node, a key has one mark at a time, so a later waiter sets its own mark as soon
// as the earlier mark is removed.

/** More milliseconds than a test takes on a busy machine. */
const LONG = 60_000;

/** The most rounds. A round with an attempt of Bob to acquire the lock shows nothing, so another round follows. */
const MOST_ROUNDS = 20;

const PERMITS: LockKind = { mode: 'permits', permits: 3 };

const options: AcquireTerms = {
  ttl: LONG,
  retry: { timeout: LONG, attempts: Infinity, delay: LONG, jitter: 0 },
  renew: true,
  signals: [],
};

describe.each([
  ['one node', 1],
  ['three nodes', 3],
])('on %s', (_nodes, count) => {
  let servers: RedisServer[];
  let lookers: Redis[];
  let stores: RedisStore[];
  let alice: Redlock;
  let bob: Redlock;
  /** Number of Bob's requests for the lock to the first node. */
  let asked: number;
  /** Number of times that the first node refused to store Bob's mark, because it had the mark of an earlier waiter. */
  let refused: number;
  /** Aborts waiters that a failed test has left. */
  let over: AbortController;

  beforeAll(async () => {
    servers = await startRedisNodes(count);
    lookers = servers.map((server) => server.client());
  });
  afterAll(() => Promise.all(servers.map((server) => server.stop())));
  beforeEach(async () => {
    await Promise.all(lookers.map((looker) => looker.flushall()));
    [asked, refused] = [0, 0];
    over = new AbortController();
    stores = nodesTo(servers.map(({ url }) => url));
    const others = nodesTo(servers.map(({ url }) => url));
    const [first] = others as [RedisStore];
    const [acquire, holdBack] = [first.acquire.bind(first), first.holdBack.bind(first)];
    first.acquire = (...request) => {
      asked++;
      acquire(...request);
    };
    first.holdBack = async (...waiter) => {
      const stands = await holdBack(...waiter);
      if (!stands) refused++;
      return stands;
    };
    await Promise.all([...stores, ...others].map((node) => node.connect()));
    alice = redlockOver(stores, { owner: 'alice', nodeTimeout: LONG / 5 });
    bob = redlockOver(others, { owner: 'bob', nodeTimeout: LONG / 5 });
  });
  afterEach(async () => {
    over.abort(new Error('the test is over'));
    await Promise.all([alice.close(), bob.close()]);
  });

  /** A waiter that came before Bob. */
  function earlier(mode: LockMode): WaiterId {
    return { keys: ['k'], mode, process: 'e'.repeat(16), number: 1, owner: 'earlier' };
  }

  /** The owner of the mark at each node. */
  async function marks(): Promise<(string | undefined)[]> {
    const found = await Promise.all(lookers.map((looker) => looker.get('lock:{k}:w')));
    return found.map((mark) => mark?.split(':').at(-1));
  }

  const everywhere = (owner: string): string[] => lookers.map(() => owner);

  test.each<[string, LockKind, LockMode, LockKind]>([
    ['a writer behind readers, after a waiter for a permit', SHARED, 'permits', EXCLUSIVE],
    ['a writer behind readers, after another writer', SHARED, 'exclusive', EXCLUSIVE],
    ['a reader behind permits, after a writer', PERMITS, 'exclusive', SHARED],
    ['a caller for a permit behind readers, after a writer', SHARED, 'exclusive', PERMITS],
  ])(
    'a waiter sets its mark as soon as an earlier mark is removed, and not only at the next attempt (%s)',
    async (_who, holding, first, kind) => {
      const held = await alice.acquire(['k'], { ...options, kind: holding });
      const markEarlier = () => Promise.all(stores.map((store) => store.holdBack(earlier(first), LONG)));
      await markEarlier();
      const waiting = bob.acquire(['k'], { ...options, kind, signals: [over.signal] });
      waiting.catch(() => undefined);
      await until(async () => (await lookers[0]!.zcount('lock:{k}:q', 0, 1e13)) === 1);
      // Bob tries to acquire the lock every second, which also sets his mark. A round with such an attempt shows nothing.
      let isSetWithoutRequest = false;
      for (let round = 0; round < MOST_ROUNDS && !isSetWithoutRequest; round++) {
        const refusedBefore = refused;
        await until(async () => {
          await markEarlier();
          return refused > refusedBefore;
        });
        const before = asked;
        expect(await marks()).toEqual(everywhere('earlier'));
        await Promise.all(stores.map((store) => store.letPass(earlier(first))));
        await until(async () => (await marks()).every((owner) => owner === 'bob'));
        isSetWithoutRequest = asked === before;
      }
      expect(isSetWithoutRequest).toBe(true);
      await held.release();
      await (await waiting).release();
      expect(await marks()).toEqual(everywhere('earlier').map(() => undefined));
    },
  );
});
