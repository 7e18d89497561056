import { tokenAt } from '../../core/fencing-token.js';
import { neutrally } from '../../core/neutral.js';
import { ANY_VERSION, type Change, getChildren, multi, remove, setData } from './client/requests.js';
import type { ZooKeeperClient } from './client/zookeeper-client.js';
import { ZooKeeperError } from './client/zookeeper-error.js';
import { ANSWER_LIMIT_MS, type KeyRecords, orNothing } from './key-records.js';
import { isOver, type KeyView, viewOf } from './key-view.js';
import { LeaderClock } from './leader-clock.js';
import { GENERATION, LOCKS, type Names } from './names.js';

/** Milliseconds after the last change of a key's node, after which it may be deleted. */
const UNUSED_FOR_MS = 3_600_000;

/** Milliseconds by which the clocks of two processes may differ, so that tokens still grow after a deletion. */
const CLOCKS_APART_MS = 60_000;

/** The shortest and the longest time between two sweeps, in milliseconds. */
const SHORTEST_PAUSE_MS = 1_800_000;
const LONGEST_PAUSE_MS = 5_400_000;

/** The number of nodes that are read at a time, and deleted in one transaction. */
const AT_A_TIME = 100;

/** The largest number of held keys whose holders are watched from one sweep to the next. */
const MOST_WATCHED = 10_000;

export interface SweeperContext {
  readonly client: ZooKeeperClient;
  readonly records: KeyRecords;
  readonly names: Names;
}

/**
 * Deletes the nodes of keys that nobody has used for an hour. Otherwise a node would stay for each key that was ever
 * locked. A holder that has crashed keeps its node only until two sweeps have seen it unchanged for longer than its ttl.
 *
 * The versions of a node that is created again begin at 0 again, so a late write could compare with a version of the deleted
 * node. Each deletion therefore changes the version of the node `generation`, with which every write compares, too.
 */
export class Sweeper {
  #timer: NodeJS.Timeout | undefined;
  /** A clock of its own: readings of that of the records compare times, which `compareTimes: false` turns off. */
  readonly #clock: LeaderClock;
  /** The views of the held keys from the last sweep: since then this process has watched their holders. */
  #watched: ReadonlyMap<string, KeyView> = new Map();

  constructor(private readonly context: SweeperContext) {
    this.#clock = new LeaderClock(context.client);
  }

  /** Begins to sweep from time to time. The time is random, so that processes do not sweep together. */
  start(): void {
    const pause = SHORTEST_PAUSE_MS + Math.random() * (LONGEST_PAUSE_MS - SHORTEST_PAUSE_MS);
    this.#timer = neutrally(
      setTimeout,
      () => {
        // The next sweep deletes the rest.
        void this.sweep().catch(() => undefined);
        this.start();
      },
      pause,
    ).unref();
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  /**
   * Deletes all nodes of this module that nobody needs.
   *
   * @param unusedFor - milliseconds since the last change of a node
   * @returns the number of keys whose nodes are deleted
   */
  async sweep(unusedFor = UNUSED_FOR_MS): Promise<number> {
    const { client, names, records } = this.context;
    await this.#clock.read();
    const { latest } = this.#clock;
    if (!latest) return 0;
    const keys = ((await orNothing(client, getChildren(LOCKS))) ?? [])
      .map((name) => names.keyOf(name))
      .filter((key) => key !== undefined);
    let deleted = 0;
    const held = new Map<string, KeyView>();
    for (let start = 0; start < keys.length; start += AT_A_TIME) {
      const page = keys.slice(start, start + AT_A_TIME);
      const versions = await Promise.all(page.map((key) => records.fetch(key).catch(() => undefined)));
      const unused: KeyView[] = [];
      for (const version of versions) {
        if (!version) continue;
        const view = viewOf(version, this.#watched.get(version.key));
        if (isUnused(view, latest.time, unusedFor)) unused.push(view);
        else if (view.record.holders.length > 0 && held.size < MOST_WATCHED) held.set(view.key, view);
      }
      deleted += await this.#delete(unused);
    }
    this.#watched = held;
    return deleted;
  }

  /** Deletes these nodes together. If one of them cannot be deleted, the others still are. */
  async #delete(views: readonly KeyView[]): Promise<number> {
    let generation = views[0]?.generation;
    const together = await this.#deleteAll(views, generation);
    if (together !== undefined) return views.length;
    let deleted = 0;
    for (const view of views) {
      const next = await this.#deleteAll([view], generation);
      if (next === undefined) continue;
      generation = next;
      deleted++;
    }
    return deleted;
  }

  /**
   * Deletes all these nodes, or none: somebody may have used one of them meanwhile.
   *
   * @param generation - the generation when the nodes were read
   * @returns the next generation; `undefined` if none is deleted
   */
  async #deleteAll(views: readonly KeyView[], generation: number | undefined): Promise<number | undefined> {
    const { client, names } = this.context;
    if (generation === undefined || views.length === 0) return undefined;
    const changes: Change[] = [setData(GENERATION, Buffer.alloc(0), generation)];
    for (const { key, version, hasQueue } of views) {
      changes.push(remove(names.pathOf(key), version!));
      if (hasQueue) changes.push(remove(names.queueOf(key), ANY_VERSION));
    }
    try {
      const [stat] = await client.ask(multi(changes), ANSWER_LIMIT_MS);
      return stat?.version;
    } catch (error) {
      if (error instanceof ZooKeeperError && error.certain && error.code !== undefined) return undefined;
      throw error;
    }
  }
}

/** `true` if the node says nothing that anybody needs, and was not changed for so long by the leader's clock. */
function isUnused(view: KeyView, time: number, unusedFor: number): boolean {
  const { version, record, storedAt, waiters } = view;
  const { holders, ticks, token } = record;
  const longAgo = Date.now() - Math.min(CLOCKS_APART_MS, unusedFor);
  return (
    version !== undefined &&
    version !== ANY_VERSION &&
    storedAt !== undefined &&
    storedAt.time < time - unusedFor &&
    waiters.length === 0 &&
    holders.every((holder) => isOver(view, holder)) &&
    Object.values(ticks).every(({ until }) => until < longAgo) &&
    token < tokenAt(longAgo)
  );
}
