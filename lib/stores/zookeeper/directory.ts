import { getChildren } from './client/requests.js';
import type { ZooKeeperClient } from './client/zookeeper-client.js';
import type { KeyState, KeyWaiter } from '../../core/ports.js';
import { asError } from '../../core/errors.js';
import { type Decision, type KeyRecords, orNothing } from './key-records.js';
import { heldKeyOf, liveHolders, without } from './key-view.js';
import { LOCKS, type Names } from './names.js';

/** The number of keys in a page. */
const PAGE = 100;

/** Reads the holders of keys, and ends their locks by force. */
export class Directory {
  constructor(
    private readonly client: ZooKeeperClient,
    private readonly records: KeyRecords,
    private readonly names: Names,
  ) {}

  read(keys: readonly string[]): Promise<readonly KeyState[]> {
    return Promise.all(
      keys.map((key) => this.records.read(key).then(heldKeyOf, (error: unknown) => asError(error))),
    );
  }

  async *scan(prefix: string): AsyncGenerator<readonly string[]> {
    const keys = (await this.#names())
      .map((name) => this.names.keyOf(name))
      .filter((key) => key !== undefined && key.startsWith(prefix)) as readonly string[];
    for (let start = 0; start < keys.length; start += PAGE) yield keys.slice(start, start + PAGE);
  }

  forceRelease(key: string, ids: readonly string[]): Promise<readonly string[]> {
    return this.records.change([key], ([view]): Decision<readonly string[]> => {
      const result = view
        ? liveHolders(view)
            .map(({ id }) => id)
            .filter((id) => ids.includes(id))
        : [];
      const [ended] = result;
      if (!view || ended === undefined) return { result };
      const freed = result.reduce(without, view);
      return { result, next: [{ ...freed, record: { ...freed.record, ended } }] };
    });
  }

  /** Reads the queue of each key. */
  waiting(keys: readonly string[]): Promise<readonly (readonly KeyWaiter[])[]> {
    return Promise.all(
      keys.map(async (key) =>
        (await this.records.queueOf(key)).map(({ mode, process, number, owner, since }) => ({
          ...{ mode, process, number, owner, since },
        })),
      ),
    );
  }

  /** The nodes of the keys; none before the first process has prepared the store. */
  async #names(): Promise<readonly string[]> {
    return (await orNothing(this.client, getChildren(LOCKS))) ?? [];
  }
}
