import { asError } from '../../core/errors.js';
import { neutrally } from '../../core/neutral.js';
import type { LockInfo, LockVote } from '../../core/lock-info.js';
import type { KeyWaiter } from '../../core/ports.js';
import type { NodesStatus } from '../../core/node-status.js';
import { ChangeLog } from './change-log.js';
import type { History } from './history.js';
import { LockTable, MOST_ROWS, type TableChange } from './lock-table.js';
import {
  type BoardAbout,
  type BoardMessage,
  type BoardStatus,
  type CampaignRow,
  type HistoryEntry,
  type LockDetails,
  MOST_OF_PREFIX,
  type NodesRow,
  type PrefixHistory,
  type ReleaseRequest,
  type VoteRow,
  type WaiterRow,
} from './messages.js';
import type { ProcessEvents } from './process-events.js';
import { redacted } from './redacted.js';
import { waitersOf } from './waiters.js';

/** Milliseconds from one look at the store to the next look, while somebody watches the board. */
const INTERVAL_MS = 400;

/** The least pause after a look, as a multiple of the look's duration, so that looks take at most 1/4 of the time. */
const PAUSE_SHARE = 3;

/** Milliseconds from one check of the nodes to the next. */
const CHECK_INTERVAL_MS = 2_000;

/** The source of the locks: a `LockService`, or the stores that the command `npx nestjs-redlock board` has opened. */
export interface LockSource {
  list(): AsyncIterable<LockInfo>;
  checkNodes(): Promise<NodesStatus>;
  forceRelease(key: string, options: { readonly id: string; readonly actor?: string }): Promise<boolean>;
  /** The waiters of all processes in the queues of these keys. */
  waiting(keys: readonly string[]): Promise<ReadonlyMap<string, readonly KeyWaiter[]>>;
  /** The names for which this process campaigns as leader (`@Leader`). */
  campaigns(): readonly CampaignRow[];
  /** The ids of the locks that this process holds. */
  heldIds(): ReadonlySet<string>;
  /** The name of this process in the queues. */
  readonly process?: string;
}

/** Receives a {@link BoardMessage} as JSON, and the id to pass to `watch` after the stream was cut. */
export type Viewer = (message: string, id: string) => void;

/**
 * Reads the locks of a store again and again while somebody watches the board, which is the web page of the locks. All
 * viewers share each look at the store. While nobody watches, there are no looks.
 */
export class LiveLocks {
  readonly #table = new LockTable();
  readonly #log = new ChangeLog();
  readonly #viewers = new Set<Viewer>();
  /** Viewers that wait for the first look. */
  readonly #newcomers = new Set<Viewer>();
  /**
   * Entries of the history for holders that no event of this process reports, by the id of the holder and the key. An
   * entry is removed when a look no longer finds its holder.
   */
  readonly #others = new Map<string, Extract<HistoryEntry, { kind: 'held' }>>();
  /** The waiters at the last look, by key. */
  #queues: ReadonlyMap<string, readonly KeyWaiter[]> = new Map();
  #status: BoardStatus = { nodes: undefined, ticks: [], campaigns: [], hasMore: false };
  #nodes: NodesRow | undefined;
  #checkedAt = -Infinity;
  #checking = false;
  #isRunning = false;
  /** `true` if the next look adds to the history all holders that it finds, not only new ones. */
  #isAnew = true;
  /** `true` from the end of the first look until the looks stop: the table has the locks of the latest look. */
  #isFresh = false;
  #wake: (() => void) | undefined;
  #lastSnapshot: { readonly id: string; readonly text: string; readonly made: number } | undefined;

  /** @param events - the events of this process; `npx nestjs-redlock board` has none */
  constructor(
    private readonly source: LockSource,
    private readonly about: BoardAbout,
    private readonly history: History,
    private readonly events: ProcessEvents | undefined,
  ) {}

  /**
   * Sends the viewer the whole state, and then each change.
   *
   * @param after - the last id that the viewer received before its stream was cut. If the changes since then are known,
   * the viewer gets them in place of the whole state
   * @returns a function that stops the sending
   */
  watch(viewer: Viewer, after?: string): () => void {
    const missed = after === undefined ? undefined : this.#log.after(after);
    if (missed) {
      for (const [change, id] of missed) viewer(change, id);
      this.#viewers.add(viewer);
    } else if (this.#isFresh) {
      viewer(this.#snapshot(), this.#log.id);
      this.#viewers.add(viewer);
    } else this.#newcomers.add(viewer);
    // The looks serve all viewers, and outlive the request of the first viewer (S30).
    if (!this.#isRunning) void neutrally(() => this.#run());
    return () => {
      this.#viewers.delete(viewer);
      this.#newcomers.delete(viewer);
      if (this.#isIdle) this.#wake?.();
    };
  }

  /** Returns all that is known of lock number `n`; `undefined` when the number is not known any more. */
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
   * Releases the lock for the holders with these ids, which the user has confirmed. A holder that acquired the lock
   * after the confirmation keeps it.
   *
   * @returns the number of holders that lost the lock; `undefined` when the number `n` is not known any more
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

  /** Looks at the locks again and again while somebody watches. Never rejects. */
  async #run(): Promise<void> {
    this.#isRunning = true;
    if (this.events?.record()) this.#others.clear();
    this.#isAnew = this.#others.size === 0;
    while (!this.#isIdle) {
      const began = performance.now();
      // A failed look is repeated. Nobody waits for this Promise, so its rejection would end the application.
      await this.#look().catch(() => undefined);
      const took = performance.now() - began;
      if (!this.#isIdle) await this.#pause(Math.max(INTERVAL_MS - took, took * PAUSE_SHARE));
    }
    this.#isRunning = this.#isFresh = false;
    this.#lastSnapshot = undefined;
    this.events?.rest();
  }

  #pause(milliseconds: number): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        this.#wake = undefined;
        resolve();
      };
      // The streams of the viewers keep the process alive; this timer does not.
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
      for await (const info of this.source.list()) {
        infos.set(info.key, info);
        // Stop after one lock more than the board sends: this lock shows that there are more. Otherwise each look would
        // read all locks, of which there may be a million.
        if (infos.size > MOST_ROWS) break;
      }
      this.#queues = await this.source.waiting([...infos.keys()].slice(0, MOST_ROWS));
      const calls = this.events?.waiters();
      held = this.source.heldIds();
      change = this.#table.update(infos, { held, waitersOf: (key) => this.#waitersOf(key, calls) }, now);
    } catch (error) {
      // Too few nodes answered: the page keeps the old rows and says that they are old.
      problem = redacted(asError(error).message);
    }
    if (change) this.#note(change, held, now);
    this.#tell(change, problem);
  }

  /**
   * Adds to the history the holders that no event reports: the holders in other processes, and the holders in this
   * process that got their lock before the recording began. Records the end of these holders, too.
   */
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
      hasMore: this.#table.hasMore,
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
      // Make the text once for all viewers.
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

  /** The whole state. Viewers that come at the same time get the same text, which is made only once. */
  #snapshot(): string {
    const { epoch, id } = this.#log;
    const known = this.#lastSnapshot;
    if (known?.id === id && performance.now() - known.made < INTERVAL_MS) return known.text;
    const message: BoardMessage = {
      type: 'snapshot',
      epoch,
      now: Date.now(),
      about: this.about,
      status: this.#status,
      rows: this.#table.rows,
    };
    const text = JSON.stringify(message);
    this.#lastSnapshot = { id, text, made: performance.now() };
    return text;
  }

  /**
   * Checks the nodes at the same time as the looks at the store, so that no look waits until a silent node answers the
   * check. Never rejects.
   */
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
    } catch {
      // The state of the nodes is unknown. The look reports why the locks cannot be read.
      this.#nodes = undefined;
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
