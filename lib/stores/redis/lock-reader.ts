import { elapsedSince, type Instant, now } from '../../core/clock.js';
import { asError } from '../../core/errors.js';
import type { KeyHolder, KeyState, KeyWaiter } from '../../core/ports.js';
import { type CommandChannel, mayConcernOne } from './connection/command-channel.js';
import { keyPrefixOf } from './connection/connection.js';
import { mastersOf } from './connection/driver.js';
import { keyOfLock, lockPattern } from './lock-key.js';
import { nodeScripts } from './scripts/node-scripts.js';

/**
 * Number of Redis keys that one SCAN visits, including keys that are not locks. The SCAN takes about a quarter of a
 * millisecond of server time, and the command that then reads the locks takes no more than that.
 */
const SCAN_COUNT = 500;

/** Reads the locks of one node, and changes nothing. */
export class LockReader {
  constructor(
    private readonly channel: CommandChannel,
    private readonly keyPrefix: string,
  ) {}

  async read(keys: readonly string[]): Promise<readonly KeyState[]> {
    return this.#oneByOne(
      keys,
      (some) => this.#readAt(some),
      (error) => error,
    );
  }

  /** Reads the first waiters in the queue of each key. */
  async waiting(keys: readonly string[]): Promise<readonly (readonly KeyWaiter[])[]> {
    const { script, pack, waitersOf } = nodeScripts.waiting;
    const read = async (some: readonly string[]): Promise<readonly (readonly KeyWaiter[])[]> =>
      waitersOf(some.length, await this.channel.run(script, pack(some, this.keyPrefix)));
    return this.#oneByOne(keys, read, () => []);
  }

  /** Lists keys in pages. Uses SCAN: KEYS would block the server until it has read all keys. */
  async *scan(prefix: string): AsyncGenerator<readonly string[]> {
    const { client } = this.channel;
    // ioredis does not remove its `keyPrefix` from the keys that SCAN returns.
    const before = `${keyPrefixOf(client)}${this.keyPrefix}`;
    const pattern = lockPattern(before, prefix);
    // Ask through the channel, which throws an error if there is no connection. Otherwise a Cluster that is not
    // connected would seem to have no masters, and so no locks.
    const servers = await this.channel.send(async () => mastersOf(client));
    for (const server of servers) {
      let cursor = '0';
      do {
        const [next, found] = await this.channel.send(() =>
          server.scan(cursor, 'MATCH', pattern, 'COUNT', SCAN_COUNT),
        );
        cursor = String(next);
        yield [...new Set(found.map((key) => keyOfLock(before, key)))];
      } while (cursor !== '0');
    }
  }

  /**
   * Groups keys so that one script reads each group. On a Cluster each key is its own group, because the keys of a
   * script must be in one hash slot. All groups are read at the same time.
   */
  #groupsOf(keys: readonly string[]): readonly (readonly string[])[] {
    return this.channel.client.isCluster ? keys.map((key) => [key]) : [keys];
  }

  /**
   * Reads several keys in one command; on a Cluster in one command for each key. If one key may be the cause of an
   * error, reads each key in its own command; then `failed` makes the answer for a key that cannot be read.
   */
  async #oneByOne<Answer>(
    keys: readonly string[],
    read: (keys: readonly string[]) => Promise<readonly Answer[]>,
    failed: (error: Error) => Answer,
  ): Promise<readonly Answer[]> {
    try {
      return (await Promise.all(this.#groupsOf(keys).map(read))).flat();
    } catch (error) {
      if (keys.length === 1 || !mayConcernOne(asError(error))) throw error;
    }
    const alone = keys.map((key) =>
      read([key]).catch((error: unknown): readonly Answer[] => {
        if (mayConcernOne(asError(error))) return [failed(asError(error))];
        throw error;
      }),
    );
    return (await Promise.all(alone)).flat();
  }

  /**
   * Reads the locks of keys. Uses several commands if there are many holders, because each command blocks the server.
   */
  async #readAt(keys: readonly string[]): Promise<readonly KeyState[]> {
    const { script, pack, page, beginning } = nodeScripts.read;
    const states: KeyState[] = [];
    let from = beginning;
    let readers = new ReaderPages();
    while (states.length < keys.length) {
      const packed = pack(keys.slice(states.length), this.keyPrefix, from);
      for (const answer of (await this.channel.run(script, packed)) as readonly unknown[]) {
        const { state, next } = page(answer);
        // If the lock is no longer shared, none of the readers from earlier pages holds it, so omit them.
        const isShared = state && 'mode' in state && state.mode === 'shared';
        const isWhole = from === beginning && next === beginning;
        if (isShared && !isWhole) readers.add(state.holders);
        from = next;
        if (from !== beginning) break;
        states.push(isShared && !isWhole ? { ...state, holders: readers.holders } : state);
        readers = new ReaderPages();
      }
    }
    return states;
  }
}

/** Collects the readers of a lock from several answers of the server. Each reader appears once, in its latest state. */
class ReaderPages {
  readonly #found = new Map<string, { readonly holder: KeyHolder; readonly at: Instant }>();

  add(page: readonly KeyHolder[]): void {
    const at = now();
    for (const holder of page) this.#found.set(holder.id, { holder, at });
  }

  /**
   * The readers, sorted by the end of their leases, the earliest end first. The list also has the readers whose end has
   * passed, because their leases may have been extended after the page was read.
   */
  get holders(): KeyHolder[] {
    return [...this.#found.values()]
      .map(({ holder, at }) => ({ ...holder, remaining: Math.max(0, holder.remaining - elapsedSince(at)) }))
      .toSorted((some, other) => some.remaining - other.remaining);
  }
}
