import { getChildren } from './client/requests.js';
import type { ZooKeeperClient } from './client/zookeeper-client.js';
import type { KeyState, KeyWaiter } from '../../core/ports.js';
import { type Decision, type KeyRecords, orNothing } from './key-records.js';
import { heldKeyOf, isSuspect, type KeyView, liveHolders, without } from './key-view.js';
import type { LeaderClock } from './leader-clock.js';
import { LOCKS, type Names } from './names.js';

/** The number of keys in a page. */
const PAGE = 100;

export interface DirectoryContext {
  readonly client: ZooKeeperClient;
  readonly records: KeyRecords;
  readonly names: Names;
  readonly clock: LeaderClock;
  /** `true` to compare the times of writes, see `compareTimes` of the options. */
  readonly comparesTimes: boolean;
}

/** Reads the holders of keys, and ends their locks by force. */
export class Directory {
  constructor(private readonly context: DirectoryContext) {}

  async read(keys: readonly string[]): Promise<readonly KeyState[]> {
    const { records, clock, comparesTimes } = this.context;
    const views = await records.inspect(keys);
    const withClock = (view: KeyView): KeyView => ({ ...view, clock: clock.latest });
    const mayHaveCrashed = (read: KeyView | Error): boolean => {
      if (read instanceof Error) return false;
      const view = withClock(read);
      return liveHolders(view).some((holder) => isSuspect(view, holder));
    };
    // A new process has not watched the holder, and would show a lock that ended long ago as held.
    if (comparesTimes && views.some(mayHaveCrashed)) await clock.read();
    return views.map((view) => (view instanceof Error ? view : heldKeyOf(withClock(view))));
  }

  async *scan(prefix: string): AsyncGenerator<readonly string[]> {
    const keys = (await this.#nodes())
      .map((name) => this.context.names.keyOf(name))
      .filter((key) => key !== undefined && key.startsWith(prefix)) as readonly string[];
    for (let start = 0; start < keys.length; start += PAGE) yield keys.slice(start, start + PAGE);
  }

  forceRelease(key: string, ids: readonly string[]): Promise<readonly string[]> {
    const free = ([view]: readonly KeyView[]): Decision<readonly string[]> => {
      const result = view
        ? liveHolders(view)
            .map(({ id }) => id)
            .filter((id) => ids.includes(id))
        : [];
      const [ended] = result;
      if (!view || ended === undefined) return { result };
      const freed = result.reduce(without, view);
      return { result, next: [{ ...freed, record: { ...freed.record, ended } }] };
    };
    return this.context.records.change([key], free, true);
  }

  /** Reads the queue of each key. */
  waiting(keys: readonly string[]): Promise<readonly (readonly KeyWaiter[])[]> {
    return Promise.all(
      keys.map(async (key) =>
        (await this.context.records.queueOf(key)).map(({ mode, process, number, owner, since }) => ({
          ...{ mode, process, number, owner, since },
        })),
      ),
    );
  }

  /** The nodes of the keys; none before the first process has prepared the store. */
  async #nodes(): Promise<readonly string[]> {
    const { client, records } = this.context;
    return (await records.newest(() => orNothing(client, getChildren(LOCKS)))) ?? [];
  }
}
