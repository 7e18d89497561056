import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { LockHeldError } from '../../lib/core/errors.js';
import { EXCLUSIVE, SHARED } from '../../lib/core/lock-mode.js';
import type { Store } from '../../lib/core/ports.js';
import type { HeldLock } from '../../lib/redlock/held-lock.js';
import type { AcquireTerms, Redlock } from '../../lib/redlock/redlock.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { PostgresStore } from '../../lib/stores/postgres/postgres-store.js';
import { nodesTo, redlockOver } from '../support/core.js';
import { startPostgresServer } from '../support/postgres-server.js';
import { newTerms } from '../support/postgres-store.js';
import { startRedisNodes } from '../support/redis-server.js';
import { until } from '../support/until.js';

// A writer that waits for several keys keeps readers away from each key on which it was refused, and from no others (S22).

/** More milliseconds than a test takes on a busy machine. */
const LONG = 60_000;

const options: AcquireTerms = {
  ttl: LONG,
  retry: { timeout: LONG, attempts: Infinity, delay: 200, jitter: 0 },
  renew: true,
  signals: [],
};

interface Opened {
  /** Makes stores to the same nodes. */
  readonly stores: () => readonly Store[];
  readonly stop: () => Promise<unknown>;
}

async function redis(count: number): Promise<Opened> {
  const servers = await startRedisNodes(count);
  const stop = () => Promise.all(servers.map((server) => server.stop()));
  return { stores: () => nodesTo(servers.map(({ url }) => url)), stop };
}

const OPEN: Record<string, () => Promise<Opened>> = {
  memory: () => {
    const store = new MemoryStore();
    return Promise.resolve({ stores: () => [store], stop: () => Promise.resolve() });
  },
  'one Redis': () => redis(1),
  'three Redis nodes': () => redis(3),
  PostgreSQL: async () => {
    const server = await startPostgresServer();
    const stores = () => [new PostgresStore({ connectionString: server.url }, newTerms())];
    return { stores, stop: () => server.stop() };
  },
};

describe.each(Object.keys(OPEN))('on %s', (name) => {
  let opened: Opened;
  let readers: Redlock;
  let writers: Redlock;
  let keys = 0;

  beforeAll(async () => {
    opened = await OPEN[name]!();
    const both = [opened.stores(), opened.stores()] as const;
    await Promise.all(both.flat().map((store) => store.connect()));
    [readers, writers] = both.map((stores) => redlockOver(stores, { nodeTimeout: LONG / 5 })) as [
      Redlock,
      Redlock,
    ];
  });
  afterAll(async () => {
    await Promise.all([readers.close(), writers.close()]);
    await opened.stop();
  });

  const twoKeys = (): [string, string] => [`{several}:${keys++}`, `{several}:${keys++}`];
  const read = (key: string, retry = options.retry): Promise<HeldLock> =>
    readers.acquire([key], { ...options, kind: SHARED, retry });
  const once = { ...options.retry, attempts: 1 };

  /** Waits until readers of the key are refused in favour of the waiting writer. */
  const heldBack = (key: string): Promise<void> =>
    until(async () => {
      const reader = await read(key, once).catch(() => undefined);
      await reader?.release();
      return reader === undefined;
    });

  test('a reader of one key can read another key for which a writer waits, because nobody holds that key', async () => {
    const [x, y] = twoKeys();
    const first = await read(x);
    const writing = writers.acquire([x, y], { ...options, kind: EXCLUSIVE });
    await heldBack(x);
    const inner = await read(y, once);
    expect(inner.isHeld()).toBe(true);
    await inner.release();
    await first.release();
    await (await writing).release();
  });

  test('a writer of two keys is not starved by readers that hold the one key and the other in turn', async () => {
    const [x, y] = twoKeys();
    const holder = await read(x);
    let isWriting = false;
    const writing = writers.acquire([x, y], { ...options, kind: EXCLUSIVE }).then((lock) => {
      isWriting = true;
      return lock;
    });
    await heldBack(x);
    const other = await read(y, once);
    await holder.release();
    await heldBack(y);
    // The writer waits for readers of `y` now, and still keeps readers away from `x`.
    await expect(read(x, once)).rejects.toThrow(LockHeldError);
    expect(isWriting).toBe(false);
    await other.release();
    await (await writing).release();
    await (await read(x)).release();
  });
});
