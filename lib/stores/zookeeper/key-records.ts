import { setTimeout as sleep } from 'node:timers/promises';
import { asError } from '../../core/errors.js';
import { neutrally } from '../../core/neutral.js';
import {
  ANY_VERSION,
  type Change,
  check,
  create,
  exists,
  getChildren,
  getData,
  multi,
  type NodeData,
  type NodeStat,
  remove,
  type Request,
  setData,
  sync,
} from './client/requests.js';
import type { ZooKeeperClient } from './client/zookeeper-client.js';
import { isRefusal, Refusal } from './client/zookeeper-error.js';
import { dataOf, type KeyRecord, NO_RECORD, recordOf } from './key-record.js';
import type { KeyVersion, KeyView } from './key-view.js';
import { type LeaderClock, storedAtOf } from './leader-clock.js';
import { entriesIn, GENERATION, type Names, ROOT, type WaiterEntry } from './names.js';
import { RememberedViews } from './remembered-views.js';

/** Time limit of a request, in milliseconds. A silent connection is ended sooner. */
export const ANSWER_LIMIT_MS = 10_000;

/**
 * Milliseconds after which a version is not compared any more. An operator may delete a node, and its versions begin
 * again with the next node.
 */
const COMPARED_FOR_MS = 600_000;

/** Largest number of rounds of a change. Another round follows when others changed the key meanwhile. */
const MOST_ROUNDS = 32;

/** The number of rounds without a pause. */
const QUICK_ROUNDS = 3;

/** The longest pause after the first rounds, in milliseconds for each round. */
const PAUSE_MS = 5;

const NO_DATA = Buffer.alloc(0);

/** The outcome of a decision; without `next` nothing changes. */
export interface Decision<Result> {
  readonly result: Result;
  /** The next state of each key. A key is written if its record or its queue differs from the view. */
  readonly next?: readonly KeyView[];
}

/**
 * Decides on the views of the keys. It may throw in place of a decision. It is called again whenever the views have
 * changed, and first on remembered views, which may be old: so an effect of it must be one that a further call replaces.
 */
export type Decide<Result> = (views: readonly KeyView[]) => Decision<Result>;

interface Job {
  readonly decide: Decide<unknown>;
  readonly newest: boolean;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/** The end of a job in a round. */
type Outcome = { readonly result: unknown } | { readonly error: unknown };

/** The parts of the store on which the records rest. */
export interface RecordsContext {
  readonly client: ZooKeeperClient;
  readonly names: Names;
  readonly clock: LeaderClock;
  /** Creates the nodes of the store again, if somebody has deleted them. */
  readonly prepare: () => Promise<void>;
}

/**
 * Reads and changes the records of keys, and their queues. A change compares the versions of all keys that it writes: it
 * takes effect only if nobody has changed one of them since it was read (compare-and-set). A waiter that joins
 * the queue of a key writes its record, too, so the comparison also shows that nobody has joined.
 *
 * When the node of a key is deleted, versions begin again. So each change also compares the version of one node
 * (`generation`), which changes with each deletion.
 *
 * Changes of one key that come while another change of the key is under way are written together.
 */
export class KeyRecords {
  readonly #views = new RememberedViews();
  /** The jobs for a key that wait for the present write. */
  readonly #waiting = new Map<string, Job[]>();
  /** Only versions that were received after this time are compared. */
  #comparedFrom = -Infinity;

  constructor(private readonly context: RecordsContext) {}

  /** Compares no version that was received over an earlier connection: the servers may have gone back to older data. */
  reconnected(): void {
    this.#comparedFrom = performance.now();
  }

  /** @param watch - if `true`, the server tells the next change of the record, once */
  async read(key: string, watch = false): Promise<KeyView> {
    return this.#views.learn(await this.fetch(key, watch));
  }

  /** Reads the newest versions of keys for people who look at locks. A key that cannot be read has an error. */
  inspect(keys: readonly string[]): Promise<readonly (KeyView | Error)[]> {
    return this.newest(() =>
      Promise.all(
        keys.map((key) =>
          this.#fetchRecord(key).then(
            (version) => this.#views.inspect(version),
            (error: unknown) => asError(error),
          ),
        ),
      ),
    );
  }

  /** Reads a key, and does not remember it. */
  async fetch(key: string, watch = false): Promise<KeyVersion> {
    const { client, names } = this.context;
    const path = names.pathOf(key);
    // A server answers in this order: nobody has deleted a node between the first and the second answer if a later write
    // finds the generation unchanged.
    const [stat, node, children] = await Promise.all([
      orNothing(client, exists(GENERATION)),
      orNothing(client, getData(path, watch)),
      orNothing(client, getChildren(names.queueOf(key))),
    ]);
    return {
      ...asVersion(key, path, node),
      waiters: entriesIn(children ?? []),
      hasQueue: children !== undefined,
      generation: stat?.version,
    };
  }

  /** Reads what people want to know of a key: not its queue, nor what a write compares with. */
  async #fetchRecord(key: string): Promise<KeyVersion> {
    const path = this.context.names.pathOf(key);
    const node = await orNothing(this.context.client, getData(path));
    return { ...asVersion(key, path, node), waiters: [], hasQueue: false, generation: undefined };
  }

  /** Reads the entries in the queue of a key, in their order. */
  async queueOf(key: string): Promise<readonly WaiterEntry[]> {
    const { client, names } = this.context;
    return entriesIn((await orNothing(client, getChildren(names.queueOf(key)))) ?? []);
  }

  /**
   * Changes the keys as `decide` says. Writes all of them, or none.
   *
   * @param newest - if `true`, a decision that changes nothing is made on the newest versions, see {@link newest}
   */
  change<Result>(keys: readonly string[], decide: Decide<Result>, newest = false): Promise<Result> {
    const [key] = keys;
    return new Promise<Result>((resolve, reject) => {
      const job: Job = { decide, newest, resolve: resolve as (result: unknown) => void, reject };
      if (key === undefined || keys.length > 1) return void this.#run(keys, [job]);
      const waiting = this.#waiting.get(key);
      if (waiting) return void waiting.push(job);
      this.#waiting.set(key, [job]);
      // The jobs of one turn of the event loop are written together, in the context of none of their callers (S30).
      neutrally(() => queueMicrotask(() => void this.#runWaiting(key)));
    });
  }

  async #runWaiting(key: string): Promise<void> {
    for (;;) {
      const jobs = this.#waiting.get(key) ?? [];
      if (jobs.length === 0) break;
      this.#waiting.set(key, []);
      await this.#run([key], jobs);
    }
    this.#waiting.delete(key);
  }

  /** Runs jobs for the same keys one after another, in one write. Does not reject. */
  async #run(keys: readonly string[], jobs: readonly Job[]): Promise<void> {
    try {
      const outcomes = await this.#insist(keys, jobs);
      for (const [index, outcome] of outcomes.entries()) {
        if ('error' in outcome) jobs[index]?.reject(outcome.error);
        else jobs[index]?.resolve(outcome.result);
      }
    } catch (error) {
      for (const { reject } of jobs) reject(error);
    }
  }

  async #insist(keys: readonly string[], jobs: readonly Job[]): Promise<readonly Outcome[]> {
    let views = this.#remembered(keys);
    for (let round = 1; round <= MOST_ROUNDS; round++) {
      const isRemembered = views !== undefined;
      views ??= await this.#readAll(keys, jobs);
      const { latest: clock } = this.context.clock;
      const present = views.map((view) => ({ ...view, clock }));
      const { outcomes, next } = decideAll(present, jobs);
      const written = present.map((view, index) => isChanged(view, next[index]!));
      // A remembered view may be old: it is good enough for a write, which compares it, and for nothing else.
      const isConfirmed =
        written.every(Boolean) && outcomes.every((outcome) => !('error' in outcome) && outcome.isChange);
      if (isRemembered && !isConfirmed) {
        views = undefined;
        continue;
      }
      if (!written.some(Boolean)) return outcomes;
      try {
        await this.#write(present, next);
        return outcomes;
      } catch (error) {
        if (!isRefusal(error, Refusal.badVersion, Refusal.noNode, Refusal.nodeExists)) throw error;
        if (present.some(({ generation }) => generation === undefined)) await this.context.prepare();
      }
      views = undefined;
      if (round > QUICK_ROUNDS) await sleep(Math.random() * PAUSE_MS * round);
    }
    throw new Error(`gave up after ${MOST_ROUNDS} rounds: others changed the key in each of them`);
  }

  #readAll(keys: readonly string[], jobs: readonly Job[]): Promise<readonly KeyView[]> {
    const read = (): Promise<readonly KeyView[]> => Promise.all(keys.map((key) => this.read(key)));
    return jobs.some(({ newest }) => newest) ? this.newest(read) : read();
  }

  /**
   * Lets the server catch up with the leader before it answers `read`. Without it a server may lag behind, and still show
   * a lock that was released. The requests are sent together, so this takes no further round trip of this process: a
   * server answers the requests of a connection in their order.
   */
  async newest<Result>(read: () => Promise<Result>): Promise<Result> {
    const [, result] = await Promise.all([this.context.client.ask(sync(ROOT), ANSWER_LIMIT_MS), read()]);
    return result;
  }

  /**
   * The last views of the keys, if a write may compare with all of them. The write compares one generation for all keys, so
   * views of several generations would hide a deletion between them.
   */
  #remembered(keys: readonly string[]): readonly KeyView[] | undefined {
    const from = Math.max(this.#comparedFrom, performance.now() - COMPARED_FOR_MS);
    const views = keys.map((key) => this.#views.get(key));
    const [first] = views;
    return views.every(
      (view) => view !== undefined && view.receivedAt > from && view.generation === first?.generation,
    )
      ? (views as readonly KeyView[])
      : undefined;
  }

  /** Sends the write in this turn of the event loop. */
  async #write(views: readonly KeyView[], next: readonly KeyView[]): Promise<void> {
    // Without the node, the write is refused.
    const changes: Change[] = [check(GENERATION, views[0]?.generation ?? 0)];
    /** For each written record the index of its change. */
    const records = new Map<number, number>();
    for (const [index, view] of views.entries()) {
      const wanted = next[index]!;
      if (!isChanged(view, wanted)) continue;
      changes.push(...this.#recordChanges(view, wanted.record));
      records.set(index, changes.length - 1);
      changes.push(...this.#queueChanges(view, wanted));
    }
    const replies = await this.context.client.ask(multi(changes), ANSWER_LIMIT_MS);
    for (const [index, at] of records) {
      const wanted = next[index]!;
      const stat = replies[at] as NodeStat;
      const hasQueue = wanted.hasQueue || wanted.waiters.length > 0;
      this.#views.learn({
        ...wanted,
        hasQueue,
        version: stat.version,
        record: withTimes(views[index]!, wanted.record),
        storedAt: storedAtOf(stat),
        transaction: stat.modified,
      });
    }
  }

  #recordChanges(view: KeyView, record: KeyRecord): readonly Change[] {
    const { client, names } = this.context;
    const path = names.pathOf(view.key);
    const data = dataOf(withTimes(view, record));
    // Only `setData` tells the time of the write.
    if (view.version === undefined)
      return [create(path, NO_DATA, { access: client.access }), setData(path, data, 0)];
    // After 2^32 changes the version would be the number that compares nothing.
    if (view.version === ANY_VERSION) throw new Error(`the node ${path} was changed too often; delete it`);
    return [setData(path, data, view.version)];
  }

  #queueChanges({ key, waiters, hasQueue }: KeyView, wanted: KeyView): readonly Change[] {
    const { client, names } = this.context;
    const { access } = client;
    const queue = names.queueOf(key);
    const added = wanted.waiters.filter(isNotIn(waiters));
    const removed = waiters.filter(isNotIn(wanted.waiters));
    return [
      ...(added.length > 0 && !hasQueue ? [create(queue, NO_DATA, { access })] : []),
      ...added.map(({ name }) => create(`${queue}/${name}`, NO_DATA, { access, isEphemeral: true })),
      ...removed.map(({ name }) => remove(`${queue}/${name}`, ANY_VERSION)),
    ];
  }
}

/** @throws ForeignValueError when another program has written the data */
function asVersion(
  key: string,
  path: string,
  node: NodeData | undefined,
): Omit<KeyVersion, 'waiters' | 'hasQueue' | 'generation'> {
  return {
    key,
    version: node?.stat.version,
    record: node ? recordOf(path, node.data) : NO_RECORD,
    storedAt: node && storedAtOf(node.stat),
    transaction: node?.stat.modified ?? 0n,
  };
}

/** Asks for something that may not exist. */
export async function orNothing<Reply>(
  client: ZooKeeperClient,
  request: Request<Reply>,
): Promise<Reply | undefined> {
  try {
    return await client.ask(request, ANSWER_LIMIT_MS);
  } catch (error) {
    if (isRefusal(error, Refusal.noNode)) return undefined;
    throw error;
  }
}

function isChanged(view: KeyView, wanted: KeyView): boolean {
  return view.record !== wanted.record || view.waiters !== wanted.waiters;
}

function isNotIn(entries: KeyView['waiters']): (entry: KeyView['waiters'][number]) => boolean {
  const names = new Set(entries.map(({ name }) => name));
  return ({ name }) => !names.has(name);
}

/** The record in which each stamp that stays names the write that has stored it, before another write replaces that. */
function withTimes({ record: before, storedAt }: KeyView, record: KeyRecord): KeyRecord {
  if (!storedAt) return record;
  const staying = new Set(before.holders);
  return {
    ...record,
    holders: record.holders.map((holder) =>
      staying.has(holder) && !holder.storedAt ? { ...holder, storedAt } : holder,
    ),
  };
}

/** Each job decides on what the jobs before it have left. */
function decideAll(
  views: readonly KeyView[],
  jobs: readonly Job[],
): {
  readonly outcomes: readonly (Outcome & { readonly isChange?: boolean })[];
  readonly next: readonly KeyView[];
} {
  let present = views;
  const outcomes = jobs.map(({ decide }) => {
    try {
      const { result, next } = decide(present);
      present = next ?? present;
      return { result, isChange: next !== undefined };
    } catch (error) {
      return { error };
    }
  });
  return { outcomes, next: present };
}
