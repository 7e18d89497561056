import { asError } from '../core/errors.js';
import type { LockInfo, LockVote } from '../core/lock-info.js';
import type { KeyWaiter } from '../core/ports.js';
import type { NodesStatus } from '../core/node-status.js';
import { ChangeLog } from './change-log.js';
import type { History } from './history.js';
import { LockTable, MOST_ROWS, type TableChange } from './lock-table.js';
import type {
  BoardAbout,
  BoardMessage,
  BoardStatus,
  CampaignRow,
  HistoryEntry,
  LockDetails,
  NodesRow,
  PrefixHistory,
  ReleaseRequest,
  VoteRow,
  WaiterRow,
} from './messages.js';
import type { ProcessEvents } from './process-events.js';
import { redacted } from './redacted.js';
import { waitersOf } from './waiters.js';

/** How often the store is looked at while somebody watches, in milliseconds. */
const INTERVAL_MS = 400;

/** A look that takes long is followed by a pause of so many times as long: looking takes a quarter of the time at most. */
const PAUSE_SHARE = 3;

/** How often the nodes are asked how fit they are, in milliseconds. */
const CHECK_INTERVAL_MS = 2_000;

/** So many entries make a timeline of a prefix. */
const MOST_OF_PREFIX = 2_000;

/** What can be looked at: a `LockService`, or what the command has opened. */
export interface LockSource {
  list(): AsyncIterable<LockInfo>;
  checkNodes(): Promise<NodesStatus>;
  forceRelease(key: string, options: { readonly id: string; readonly actor?: string }): Promise<boolean>;
  /** The waiters of all processes in the queues of these keys. */
  waiting(keys: readonly string[]): Promise<ReadonlyMap<string, readonly KeyWaiter[]>>;
  /** The names that this process campaigns for. */
  campaigns(): readonly CampaignRow[];
  /** The ids of the locks that this process holds. */
  heldIds(): ReadonlySet<string>;
  /** This process as the queues name it. */
  readonly process?: string;
}

/** Hears what is to be sent: a {@link BoardMessage} as JSON, and what to ask for after the stream was cut. */
export type Viewer = (message: string, id: string) => void;

/**
 * The locks of a store, looked at again and again while somebody watches, however many do, and not at all otherwise.
 */
export class LiveLocks {
  readonly #table = new LockTable();
  readonly #log = new ChangeLog();
  readonly #viewers = new Set<Viewer>();
  /** Those who wait for the first look. */
  readonly #newcomers = new Set<Viewer>();
  /** Holders of other processes that are held still, by key and id. */
  readonly #others = new Map<string, Extract<HistoryEntry, { kind: 'held' }>>();
  /** Of the last look. */
  #queues: ReadonlyMap<string, readonly KeyWaiter[]> = new Map();
  #status: BoardStatus = { nodes: undefined, ticks: [], campaigns: [], unsent: 0 };
  #nodes: NodesRow | undefined;
  #checkedAt = -Infinity;
  #checking = false;
  #isRunning = false;
  /** Of the holders that the last look found the history has none. */
  #isAnew = true;
  /** Whether the table is that of the last look, a moment ago. */
  #isFresh = false;
  #wake: (() => void) | undefined;

  /** @param events - of this process; the command has none */
  constructor(
    private readonly source: LockSource,
    private readonly about: BoardAbout,
    private readonly history: History,
    private readonly events: ProcessEvents | undefined,
  ) {}

  /**
   * Tells the viewer all there is, and then what changes.
   *
   * @param after - what it has heard last, if its stream was cut: then it is told what it has missed, if that is known
   * @returns ends it
   */
  watch(viewer: Viewer, after?: string): () => void {
    const missed = after === undefined ? undefined : this.#log.after(after);
    if (missed) {
      for (const change of missed) viewer(change, this.#log.id);
      this.#viewers.add(viewer);
    } else if (this.#isFresh) {
      viewer(this.#snapshot(), this.#log.id);
      this.#viewers.add(viewer);
    } else this.#newcomers.add(viewer);
    if (!this.#isRunning) void this.#run();
    return () => {
      this.#viewers.delete(viewer);
      this.#newcomers.delete(viewer);
      if (this.#isIdle) this.#wake?.();
    };
  }

  /** All that is known of a lock; `undefined` when it has not been there for long. */
  details(epoch: string, n: number): LockDetails | undefined {
    const key = this.#keyOf(epoch, n);
    if (key === undefined) return undefined;
    const { votes = [] } = this.#table.infoOf(key) ?? {};
    return {
      now: Date.now(),
      key,
      holders: this.#table.holdersOf(key, this.source.heldIds()),
      waiters: this.#waitersOf(key, this.events?.waiters()),
      votes: votes.map(voteRow),
      history: this.history.of(key),
    };
  }

  historyOf(prefix: string): PrefixHistory {
    return { now: Date.now(), history: this.history.beginningWith(prefix, MOST_OF_PREFIX) };
  }

  /**
   * Ends those of the lock's holders that are named: the ones that the question named, and nobody who came since.
   *
   * @returns how many were ended; `undefined` when the number means nothing any more
   * @throws LockUnavailableError when fewer than a quorum of nodes answered
   */
  async release({ epoch, n, ids }: ReleaseRequest, actor: string | undefined): Promise<number | undefined> {
    const key = this.#keyOf(epoch, n);
    if (key === undefined) return undefined;
    let released = 0;
    for (const id of new Set(ids)) {
      const options = { id, ...(actor !== undefined && { actor }) };
      if (await this.source.forceRelease(key, options)) released++;
    }
    this.#wake?.();
    return released;
  }

  #waitersOf(key: string, calls?: ReadonlyMap<string, readonly WaiterRow[]>): readonly WaiterRow[] {
    return waitersOf(calls?.get(key) ?? [], this.#queues.get(key) ?? [], this.source.process);
  }

  #keyOf(epoch: string, n: number): string | undefined {
    return epoch === this.#log.epoch ? this.#table.keyOf(n) : undefined;
  }

  get #isIdle(): boolean {
    return this.#viewers.size === 0 && this.#newcomers.size === 0;
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    if (this.events?.record()) this.#others.clear();
    this.#isAnew = this.#others.size === 0;
    while (!this.#isIdle) {
      const began = performance.now();
      await this.#look();
      const took = performance.now() - began;
      if (!this.#isIdle) await this.#pause(Math.max(INTERVAL_MS - took, took * PAUSE_SHARE));
    }
    this.#isRunning = this.#isFresh = false;
    this.events?.rest();
  }

  #pause(milliseconds: number): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        this.#wake = undefined;
        resolve();
      };
      // What keeps the process alive is the streams of those who watch.
      const timer = setTimeout(done, milliseconds).unref();
      this.#wake = done;
    });
  }

  async #look(): Promise<void> {
    void this.#checkNodes();
    const now = Date.now();
    let change: TableChange | undefined;
    let held: ReadonlySet<string> = new Set();
    let problem: string | undefined;
    try {
      const infos = new Map<string, LockInfo>();
      for await (const info of this.source.list()) infos.set(info.key, info);
      this.#queues = await this.source.waiting([...infos.keys()].slice(0, MOST_ROWS));
      const calls = this.events?.waiters();
      held = this.source.heldIds();
      change = this.#table.update(infos, { held, waitersOf: (key) => this.#waitersOf(key, calls) }, now);
    } catch (error) {
      // Too few nodes answer: what is shown stays, and is said to be of before.
      problem = redacted(asError(error).message);
    }
    if (change) this.#note(change, held, now);
    this.#tell(change, problem);
  }

  /** Those of whom the events have not told: holders of other processes, and what this one has held since before it was recorded. */
  #note({ begun, ended }: TableChange, held: ReadonlySet<string>, now: number): void {
    for (const { key, holder } of this.#isAnew ? this.#table.holders : begun) {
      if (this.events?.holds(holder.id) || this.#others.has(holder.id + key)) continue;
      if (this.history.of(key).some((entry) => isOf(entry, holder.fencingToken))) continue;
      const { owner: who, since, fencingToken: token, slot } = holder;
      const entry = this.history.add({
        kind: 'held' as const,
        key,
        who,
        from: since.getTime(),
        token,
        ...(slot !== undefined && { slot }),
        own: held.has(holder.id),
      });
      this.#others.set(holder.id + key, entry);
    }
    for (const { key, holder, ends } of ended) {
      const entry = this.#others.get(holder.id + key);
      if (!entry) continue;
      this.#others.delete(holder.id + key);
      entry.to = Math.min(now, ends);
      entry.end = ends > now ? 'released' : 'ended';
    }
    this.#isAnew = false;
  }

  #tell(change: TableChange | undefined, problem: string | undefined): void {
    const now = Date.now();
    const status: BoardStatus = {
      nodes: this.#nodes,
      ...(problem !== undefined && { problem }),
      ticks: this.events?.ticks ?? [],
      campaigns: this.source.campaigns(),
      unsent: this.#table.unsent,
    };
    const isStatusNew = JSON.stringify(status) !== JSON.stringify(this.#status);
    this.#status = status;
    const { rows = [], renewed = [], gone = [] } = change ?? {};
    if (isStatusNew || rows.length + renewed.length + gone.length > 0) {
      const message: BoardMessage = {
        type: 'change',
        now,
        ...(rows.length > 0 && { rows }),
        ...(renewed.length > 0 && { renewed }),
        ...(gone.length > 0 && { gone }),
        ...(isStatusNew && { status }),
      };
      // Written once, however many watch.
      const text = JSON.stringify(message);
      this.#log.add(text);
      for (const viewer of this.#viewers) viewer(text, this.#log.id);
    }
    this.#isFresh = true;
    if (this.#newcomers.size === 0) return;
    const snapshot = this.#snapshot();
    for (const viewer of this.#newcomers) {
      this.#newcomers.delete(viewer);
      this.#viewers.add(viewer);
      viewer(snapshot, this.#log.id);
    }
  }

  #snapshot(): string {
    const { epoch } = this.#log;
    const message: BoardMessage = {
      type: 'snapshot',
      epoch,
      now: Date.now(),
      about: this.about,
      status: this.#status,
      rows: this.#table.rows,
    };
    return JSON.stringify(message);
  }

  /** Beside the looks: a node that is silent takes its time, and the locks of the others are there. */
  async #checkNodes(): Promise<void> {
    if (this.#checking || performance.now() - this.#checkedAt < CHECK_INTERVAL_MS) return;
    this.#checking = true;
    this.#checkedAt = performance.now();
    try {
      const { available, quorum, nodes } = await this.source.checkNodes();
      this.#nodes = {
        available,
        quorum,
        nodes: nodes.map(({ node, state, votesIn, reason, warnings }) => ({
          node: redacted(node),
          state,
          ...(votesIn !== undefined && { votesIn }),
          ...(reason !== undefined && { reason: redacted(reason) }),
          warnings: warnings.map(redacted),
        })),
      };
    } finally {
      this.#checking = false;
    }
  }
}

function isOf(entry: HistoryEntry, token: number | undefined): boolean {
  return entry.kind === 'held' && token !== undefined && entry.token === token;
}

function voteRow(vote: LockVote): VoteRow {
  const node = redacted(vote.node);
  if (vote.vote === 'error') return { node, says: redacted(vote.error.message) };
  if (vote.vote === 'free') return { node, says: 'free' };
  return { node, says: `held by ${vote.holders.map(({ owner }) => owner).join(', ')}` };
}
