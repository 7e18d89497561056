import type { ZooKeeperStore } from '../../../lib/stores/zookeeper/zookeeper-store.js';

/** The ids of the holders of each held key. */
export async function holdersIn(store: ZooKeeperStore): Promise<ReadonlyMap<string, readonly string[]>> {
  const found = new Map<string, readonly string[]>();
  for await (const page of store.scan('')) {
    const states = await store.read(page);
    for (const [at, state] of states.entries()) {
      if (state instanceof Error) throw state;
      if (state)
        found.set(
          page[at]!,
          state.holders.map(({ id }) => id),
        );
    }
  }
  return found;
}
