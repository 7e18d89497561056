import { describe, expect, test } from '@jest/globals';
import { RedlockModule, type RedlockModuleOptions } from '../../lib/index.js';
import type { Store } from '../../lib/core/ports.js';
import type { StoreFactory, StoreTerms } from '../../lib/core/store-factory.js';
import { makeRuntime } from '../../lib/setup/open-runtime.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { UnfitStoreError } from '../../lib/core/errors.js';
import { LogLines } from '../support/log-lines.js';
import { startApp } from '../support/nest-app.js';
import { LockService } from '../../lib/index.js';

/** A store that replicates itself: it lacks the methods with which several nodes agree on a fencing token. */
function alone(): Store {
  const store: Store = new MemoryStore();
  return Object.assign(store, { raise: undefined, time: undefined });
}

function factory(open: (terms: StoreTerms) => Store = alone): StoreFactory {
  return { openStore: open };
}

const refused = (options: RedlockModuleOptions): void => void RedlockModule.forRoot(options);

describe('a store in `nodes`', () => {
  test.each([
    ['given as an object', alone()],
    ['given as a factory', factory()],
  ])('a store in `nodes` grants locks when it is %s', async (_, nodes) => {
    const locks = (await startApp({}, { nodes })).get(LockService);
    await using lock = await locks.acquire('key');
    await expect(locks.inspect('key')).resolves.toMatchObject({ held: true, id: lock.id });
  });

  test('the factory of a store receives the key prefix', async () => {
    let prefix: string | undefined;
    makeRuntime({
      nodes: factory(({ keyPrefix }) => {
        prefix = keyPrefix;
        return alone();
      }),
      keyPrefix: 'app:',
    });
    expect(prefix).toBe('app:');
  });

  test('a store that replicates itself must be the only node', () => {
    const two = /a single store.*got several nodes: this store replicates itself/;
    expect(() => refused({ nodes: [factory(), factory()] })).toThrow(two);
    expect(() => refused({ nodes: ['redis://localhost', factory()] })).toThrow(two);
    expect(() => refused({ nodes: [alone(), alone(), alone()] })).toThrow(two);
    expect(() => refused({ nodes: [factory()] })).not.toThrow();
    expect(() => refused({ nodes: [new MemoryStore(), new MemoryStore()] })).not.toThrow();
  });

  test('a store that lacks methods is refused with an error that names the methods', () => {
    const lacking = (...names: (keyof Store)[]): Store =>
      Object.assign(alone(), Object.fromEntries(names.map((name) => [name, undefined])));
    const withoutRelease = lacking('release', 'close');
    expect(() => refused({ nodes: withoutRelease })).toThrow(
      'Expected the store in `nodes` to have all methods of `LockStore`: it has no `release`, `close`',
    );
    expect(() => makeRuntime({ nodes: factory(() => withoutRelease) })).toThrow(
      'Expected the result of `openStore` in `nodes` to have all methods of `LockStore`: it has no `release`, `close`',
    );
    expect(() => refused({ nodes: { acquire: () => undefined } as unknown as Store })).toThrow(
      'it has no `connect`, `extend`, `release`, `close`',
    );
    expect(() => refused({ nodes: lacking('leave') })).toThrow(
      'which has `listen`, `contended`, to have all methods of `WaitQueue`: it has no `leave`',
    );
    expect(() => refused({ nodes: lacking('listen', 'leave', 'contended') })).not.toThrow();
  });

  test.each([
    [
      { modes: [] },
      "Expected `modes` of the store in `nodes` to be a list that contains 'exclusive', and otherwise only values of",
    ],
    [
      { modes: ['shared'] },
      "Expected `modes` of the store in `nodes` to be a list that contains 'exclusive'",
    ],
    [{ modes: ['exclusive', 'read'] }, "got [ 'exclusive', 'read' ]"],
    [{ name: '' }, 'Expected `name` of the store in `nodes` to be a string that is not empty'],
    [{ available: undefined }, 'Expected `available` of the store in `nodes` to be true or false'],
    [{ subscribed: 1 }, 'Expected `subscribed` of the store in `nodes` to be true or false'],
  ])('a store is refused when it has an invalid property: %j', (property, message) => {
    const store = Object.assign(alone(), property) as Store;
    expect(() => refused({ nodes: store })).toThrow(message);
  });

  test('a store factory is refused when its `openStore` is no function or returns no store', () => {
    expect(() => refused({ nodes: { openStore: 'later' } as unknown as StoreFactory })).toThrow(
      "Expected `nodes.openStore` to be a function, got 'later'",
    );
    expect(() => makeRuntime({ nodes: factory(() => undefined as unknown as Store) })).toThrow(
      'Expected the result of `openStore` in `nodes` to be a store, got undefined',
    );
  });

  test('a store that replicates itself cannot be combined with a `restartGuard`', () => {
    expect(() => refused({ nodes: factory(), restartGuard: 10_000 })).toThrow(
      /`restartGuard` is for nodes that may forget locks/,
    );
    expect(() => refused({ nodes: factory(), restartGuard: false })).not.toThrow();
  });

  test('a store whose `connect` rejects with UnfitStoreError stops start-up with an error that names the store', async () => {
    const unfit = factory(() =>
      Object.assign(alone(), {
        name: 'Database at db:5432',
        connect: () => Promise.reject(new UnfitStoreError('cannot be used for locks: it is a standby')),
      }),
    );
    await expect(startApp({}, { nodes: unfit })).rejects.toThrow(
      'Database at db:5432 cannot be used for locks: it is a standby',
    );
  });

  test('a store that cannot be reached is logged with its own error, without advice for Redis', async () => {
    const away = factory(() =>
      Object.assign(alone(), {
        name: 'my table',
        connect: () => Promise.reject(new Error('connect ECONNREFUSED; ask Ann')),
      }),
    );
    const lines = new LogLines();
    await startApp({}, { nodes: away }, { logger: lines });
    expect(lines.of('warn')).toEqual([
      'Cannot reach my table: connect ECONNREFUSED; ask Ann. Trying again in the background.',
    ]);
  });
});
