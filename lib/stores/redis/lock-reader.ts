import type { KeyState, KeyWaiter } from '../../core/ports.js';
import type { CommandChannel } from './connection/command-channel.js';
import { keyPrefixOf } from './connection/connection.js';
import { mastersOf } from './connection/driver.js';
import { keyOfLock, lockPattern } from './lock-key.js';
import { ReaderPages } from './reader-pages.js';
import { packWaiting, WAITING, waitersOf } from './scripts/waiting.js';
import { BEGINNING, packRead, READ, readPage } from './scripts/read.js';

/**
 * Number of keys of any kind in one SCAN. The SCAN takes about a quarter of a millisecond of server time, and the read
 * of its keys no more than that.
 */
const SCAN_COUNT = 500;

/** Reads the locks of one node, and changes nothing. */
export class LockReader {
  constructor(
    private readonly channel: CommandChannel,
    private readonly keyPrefix: string,
  ) {}

  async read(keys: readonly string[]): Promise<readonly KeyState[]> {
    const found = await Promise.all(this.#groupsOf(keys).map((group) => this.#readAt(group)));
    return found.flat();
  }

  /** Reads the first waiters in the queue of each key. */
  async waiting(keys: readonly string[]): Promise<readonly (readonly KeyWaiter[])[]> {
    const found = this.#groupsOf(keys).map(async (group) =>
      waitersOf(group.length, await this.channel.run(WAITING, packWaiting(group, this.keyPrefix))),
    );
    return (await Promise.all(found)).flat();
  }

  /** Lists keys in pages. Uses SCAN: KEYS would block the server until it has read all keys. */
  async *scan(prefix: string): AsyncGenerator<readonly string[]> {
    const { client } = this.channel;
    // ioredis does not remove its `keyPrefix` from the keys that SCAN returns.
    const before = `${keyPrefixOf(client)}${this.keyPrefix}`;
    const pattern = lockPattern(before, prefix);
    // Ask through the channel, so that a Cluster that is not connected is an error. Otherwise it would seem to have no
    // masters.
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
   * Groups keys for one script each: on a Cluster the keys of a script must be in one slot. Commands that are sent
   * together are answered together.
   */
  #groupsOf(keys: readonly string[]): readonly (readonly string[])[] {
    return this.channel.client.isCluster ? keys.map((key) => [key]) : [keys];
  }

  /** Reads keys with several commands if necessary, because each command blocks the server. */
  async #readAt(keys: readonly string[]): Promise<readonly KeyState[]> {
    const states: KeyState[] = [];
    let from = BEGINNING;
    let readers = new ReaderPages();
    while (states.length < keys.length) {
      const packed = packRead(keys.slice(states.length), this.keyPrefix, from);
      for (const answer of (await this.channel.run(READ, packed)) as readonly unknown[]) {
        const { state, next } = readPage(answer);
        // If the lock is no longer shared, none of the readers from earlier pages holds it.
        const isShared = state && 'mode' in state && state.mode === 'shared';
        const isWhole = from === BEGINNING && next === BEGINNING;
        if (isShared && !isWhole) readers.add(state.holders);
        from = next;
        if (from !== BEGINNING) break;
        states.push(isShared && !isWhole ? { ...state, holders: readers.holders } : state);
        readers = new ReaderPages();
      }
    }
    return states;
  }
}
