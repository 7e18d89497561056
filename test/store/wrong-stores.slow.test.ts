import { beforeAll, describe, expect, test } from '@jest/globals';
import type { LockMode } from '../../lib/core/lock-mode.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { type ContractRunner, type Store, storeContract } from '../../lib/store/index.js';
import { RightTableStore, WRONG_STORES } from './wrong-stores.js';

/** The tests that the contract suite defines for the store, by their names. */
function testsOf(store: Store): Map<string, () => Promise<void>> {
  const tests = new Map<string, () => Promise<void>>();
  const runner: ContractRunner = {
    describe: (_, body) => body(),
    test: (name, body) => tests.set(name, body),
  };
  storeContract(runner, 'a store', { modes: store.modes, store: () => store });
  return tests;
}

/** Runs the tests whose names begin like this, and returns their failures. */
async function failures(store: Store, beginning: string): Promise<unknown[]> {
  const chosen = [...testsOf(store)].filter(([name]) => name.startsWith(beginning));
  const results = await Promise.allSettled(chosen.map(async ([, body]) => body()));
  if (chosen.length === 0) throw new Error(`no test of the contract suite begins with: ${beginning}`);
  return results.flatMap((result) => (result.status === 'rejected' ? [result.reason] : []));
}

describe('the contract suite of stores', () => {
  /** The failures of each wrong store. They run side by side, because some tests wait for something that never comes. */
  const found = new Map<string, unknown[]>();

  beforeAll(async () => {
    await Promise.all(
      WRONG_STORES.map(async ({ mistake, rejectedBy, make }) => {
        found.set(mistake, await failures(make(), rejectedBy));
      }),
    );
  }, 120_000);

  test.each(WRONG_STORES)('rejects a store that $mistake: "$rejectedBy"', ({ mistake }) => {
    expect(found.get(mistake)).not.toEqual([]);
  });

  test.each<[string, Store, readonly LockMode[]]>([
    ['store in memory', new MemoryStore(), ['exclusive', 'shared', 'permits']],
    ['table', new RightTableStore(), ['exclusive']],
  ])(
    'accepts the %s, from which the wrong stores differ',
    async (_, store, modes) => {
      expect(store.modes).toEqual(modes);
      const names = new Set(WRONG_STORES.map(({ rejectedBy }) => rejectedBy));
      const chosen = [...names].filter(
        (name) =>
          modes.length > 1 || !/'shared'|readers|holders at a time|its holders|each holder/.test(name),
      );
      const results = await Promise.all(
        chosen.map(async (name) => ({ name, failures: await failures(store, name) })),
      );
      expect(results).toEqual(chosen.map((name) => ({ name, failures: [] })));
    },
    120_000,
  );
});
