import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { EXCLUSIVE, type LockKind, type LockMode, SHARED } from '../../lib/core/lock-mode.js';
import type { WaiterId } from '../../lib/core/waiter-id.js';
import type { AcquireOptions, Redlock } from '../../lib/redlock/redlock.js';
import type { RedisStore } from '../../lib/stores/redis/redis-store.js';
import { nodesTo, redlockOver } from '../support/core.js';
import { type RedisServer, startRedisNodes } from '../support/redis-server.js';
import { until } from '../support/until.js';

// One mark stands for each key. Who came later leaves its own as soon as the earlier one has gone (S22).

/** Longer than a test takes on a busy machine, in milliseconds. */
const LONG = 60_000;

const PERMITS: LockKind = { mode: 'permits', permits: 3 };

const options: AcquireOptions = {
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
  /** How often Bob has asked for a lock, at the node that is asked first. */
  let asked: number;
  /** How often that node was told to hold others back for Bob. */
  let told: number;
  /** Aborts waiters that a failed test has left. */
  let over: AbortController;

  beforeAll(async () => {
    servers = await startRedisNodes(count);
    lookers = servers.map((server) => server.client());
  });
  afterAll(() => Promise.all(servers.map((server) => server.stop())));
  beforeEach(async () => {
    await Promise.all(lookers.map((looker) => looker.flushall()));
    [asked, told] = [0, 0];
    over = new AbortController();
    stores = nodesTo(servers.map(({ url }) => url));
    const others = nodesTo(servers.map(({ url }) => url));
    const [first] = others as [RedisStore];
    const [acquire, holdBack] = [first.acquire.bind(first), first.holdBack.bind(first)];
    first.acquire = (...request) => {
      asked++;
      acquire(...request);
    };
    first.holdBack = (...waiter) => {
      told++;
      return holdBack(...waiter);
    };
    await Promise.all([...stores, ...others].map((node) => node.connect()));
    alice = redlockOver(stores, { owner: 'alice', nodeTimeout: LONG / 5 });
    bob = redlockOver(others, { owner: 'bob', nodeTimeout: LONG / 5 });
  });
  afterEach(async () => {
    over.abort(new Error('the test is over'));
    await Promise.all([alice.close(), bob.close()]);
  });

  /** Somebody who came a while ago. */
  function earlier(mode: LockMode): WaiterId {
    return { keys: ['k'], mode, process: 'e'.repeat(16), number: 1, owner: 'earlier' };
  }

  /** Whose mark stands at each node. */
  async function marks(): Promise<(string | undefined)[]> {
    const found = await Promise.all(lookers.map((looker) => looker.get('lock:{k}:w')));
    return found.map((mark) => mark?.split(':').at(-1));
  }

  const everywhere = (owner: string): string[] => lookers.map(() => owner);

  test.each<[string, LockKind, LockMode, LockKind]>([
    ['a writer, while readers hold it and a permit is waited for', SHARED, 'permits', EXCLUSIVE],
    ['a writer, while readers hold it and another writer waits', SHARED, 'exclusive', EXCLUSIVE],
    ['a reader, while permits are held and a writer waits', PERMITS, 'exclusive', SHARED],
    ['one who waits for a permit, while readers hold it and a writer waits', SHARED, 'exclusive', PERMITS],
  ])(
    '%s: sets the mark when the earlier mark goes, not at its next attempt',
    async (_who, holding, first, kind) => {
      const held = await alice.acquire(['k'], { ...options, kind: holding });
      await Promise.all(stores.map((store) => store.holdBack(earlier(first), LONG)));
      const waiting = bob.acquire(['k'], { ...options, kind, signals: [over.signal] });
      waiting.catch(() => undefined);
      // It stands in line, and asks again in a second.
      await until(async () => (await lookers[0]!.zcount('lock:{k}:q', 0, 1e13)) === 1 && told >= asked);
      expect(await marks()).toEqual(everywhere('earlier'));
      const before = asked;
      await Promise.all(stores.map((store) => store.letPass(earlier(first))));
      await until(async () => (await marks()).every((owner) => owner === 'bob'));
      expect(asked).toBe(before);
      await held.release();
      await (await waiting).release();
      expect(await marks()).toEqual(everywhere('earlier').map(() => undefined));
    },
  );
});
