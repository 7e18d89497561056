import type { LockMode } from '../../core/lock-mode.js';

// Messages between the server of the board and its page. Times are milliseconds since 1970 by the clock of the server.
// `since` of a holder is by the clock of that holder; for `since` of a waiter see {@link WaiterRow}.

/** A holder of a lock. */
export interface HolderRow {
  readonly id: string;
  readonly owner: string;
  readonly since: number;
  /** The end of the lock, unless it is extended; `null` when the key has no expiry. */
  readonly ends: number | null;
  /**
   * The ttl in milliseconds; missing when the key has no expiry. Stores do not tell it, so this is an estimate: nearly
   * exact once the server has seen the start of the hold or an extension.
   */
  readonly ttl?: number;
  /** The number of extensions that the server has seen. */
  readonly renewals: number;
  readonly token: number | undefined;
  readonly slot?: number;
  /** `true` if the lock was detached, and waits for the process that attaches it. */
  readonly detached?: true;
  /** `true` if the process of the board holds the lock. */
  readonly own?: true;
}

/** A waiter of a lock: one waiting call of this process, or all waiting calls of another process in one mode. */
export interface WaiterRow {
  readonly owner: string;
  /**
   * Start of the wait: for a call of this process, by the clock of this process; for another waiter, by the clock of the
   * store, if the store has one.
   */
  readonly since: number;
  readonly mode: LockMode;
  /** The names of the class and of the method; only for a waiter of this process. */
  readonly method?: string;
  readonly own?: true;
}

/** A lock as the table shows it. Long texts are cut, except in {@link LockDetails}. */
export interface LockRow {
  /** The number by which the server finds the lock. */
  readonly n: number;
  readonly key: string;
  /** The length of the key, if it is cut. */
  readonly length?: number;
  /** `null` when no quorum of nodes has the lock: an attempt failed, or a release did not reach all nodes. */
  readonly mode: LockMode | null;
  readonly permits?: number;
  /** Sorted by the time at which their locks end, the earliest first. */
  readonly holders: readonly HolderRow[];
  /** The number of further holders, which are not in `holders`. */
  readonly more?: number;
  readonly waiters: readonly WaiterRow[];
  /** The number of further waiters, which are not in `waiters`. */
  readonly moreWaiters?: number;
  /** The number of nodes that have the lock, and the number of all nodes. */
  readonly nodes: readonly [have: number, of: number];
}

/**
 * An extension of one holder: the number of the lock, the index of the holder, its new end, its extensions so far, and
 * its ttl (see {@link HolderRow}).
 */
export type Renewal = readonly [
  n: number,
  holder: number,
  ends: number | null,
  renewals: number,
  ttl: number | null,
];

export interface NodeRow {
  readonly node: string;
  readonly state: 'voting' | 'guarded' | 'unfit' | 'unreachable';
  readonly votesIn?: number;
  readonly reason?: string;
  readonly warnings: readonly string[];
}

export interface NodesRow {
  readonly available: boolean;
  readonly quorum: number;
  readonly nodes: readonly NodeRow[];
}

/** The ticks (scheduled runs) of one method or job with `oncePerTick`, as this process saw them. */
export interface TickRow {
  /** The names of the class and of the method, or the call of `LockService` with the first key. */
  readonly method: string;
  readonly key: string;
  readonly ran: number;
  readonly skipped: number;
  /** The last tick that ran in this process. */
  readonly lastRun?: { readonly tick: number; readonly at: number };
  /** The last tick that this process skipped, and the process that had run it. */
  readonly lastSkip?: { readonly tick: number; readonly at: number; readonly by?: string };
}

/** A name for which this process campaigns as leader (`@Leader`). */
export interface CampaignRow {
  readonly name: string;
  readonly isLeader: boolean;
}

/** The state of the store and of this process, without the locks. */
export interface BoardStatus {
  readonly nodes: NodesRow | undefined;
  /** The reason why the locks cannot be read at present; the page then shows the locks of the last look. */
  readonly problem?: string;
  readonly ticks: readonly TickRow[];
  readonly campaigns: readonly CampaignRow[];
  /** `true` if the store has more locks than are sent. */
  readonly hasMore: boolean;
}

/** A lock that the application has declared, even while nobody holds it. */
export interface DeclaredRow {
  readonly name: string;
  /** `null` when a function returns the keys. */
  readonly keys: readonly string[] | null;
  readonly team?: string;
  readonly about?: string;
  readonly mode: LockMode;
  readonly permits?: number;
  /** The other options of its policy, as a text of names and values. */
  readonly policy: string;
  /** The options that the module overrides. */
  readonly overridden: readonly string[];
}

/** The facts that stay the same while the server runs. */
export interface BoardAbout {
  /** The readable name of this process; `npx nestjs-redlock board` has none. */
  readonly owner?: string;
  /** The `name` of the `RedlockModule`. */
  readonly instance?: string;
  readonly allowForceRelease: boolean;
  readonly declared: readonly DeclaredRow[];
}

export interface Snapshot {
  readonly type: 'snapshot';
  /** Identifies the run of the server: the numbers of rows are not valid in another run. */
  readonly epoch: string;
  readonly now: number;
  readonly about: BoardAbout;
  readonly status: BoardStatus;
  readonly rows: readonly LockRow[];
}

export interface Change {
  readonly type: 'change';
  readonly now: number;
  /** New locks, and locks with a change other than an extension. */
  readonly rows?: readonly LockRow[];
  readonly renewed?: readonly Renewal[];
  readonly gone?: readonly number[];
  readonly status?: BoardStatus;
}

export type BoardMessage = Snapshot | Change;

/** An event of a lock, for the timeline. */
export type HistoryEntry =
  | {
      readonly kind: 'held';
      readonly key: string;
      readonly who: string;
      /** The time at which the holder began to wait for the lock; missing if it did not wait. */
      readonly asked?: number;
      readonly from: number;
      /** The end of the hold; `undefined` while it lasts. */
      to?: number;
      /** `'ended'` when it is not known whether the lock was released or its ttl had passed. */
      end?: 'released' | 'lost' | 'ended';
      readonly token?: number | undefined;
      readonly slot?: number;
      readonly own: boolean;
    }
  | {
      readonly kind: 'waited';
      readonly key: string;
      readonly who: string;
      readonly from: number;
      readonly to: number;
      readonly outcome: 'held' | 'unavailable' | 'aborted';
    }
  | {
      readonly kind: 'skipped';
      readonly key: string;
      readonly who: string;
      readonly at: number;
      readonly reason: 'held' | 'tick-ran' | 'shutdown';
    }
  | { readonly kind: 'unconfirmed'; readonly key: string; readonly who: string; readonly at: number }
  | { readonly kind: 'forced'; readonly key: string; readonly who: string; readonly at: number };

/** The answer of a node about a lock. */
export interface VoteRow {
  readonly node: string;
  readonly says: string;
}

/** A lock with all that is known of it. */
export interface LockDetails {
  readonly now: number;
  /** The whole key. */
  readonly key: string;
  readonly holders: readonly HolderRow[];
  readonly waiters: readonly WaiterRow[];
  readonly votes: readonly VoteRow[];
  readonly history: readonly HistoryEntry[];
}

/** Largest number of entries in one {@link PrefixHistory}. */
export const MOST_OF_PREFIX = 2_000;

/** The latest entries of all locks whose keys begin with a prefix. */
export interface PrefixHistory {
  readonly now: number;
  readonly history: readonly HistoryEntry[];
}

/** Largest number of holders in one {@link ReleaseRequest}: the server sends the store a request for each holder. */
export const MOST_RELEASED = 500;

/** The request of the page to release a lock by force, for the holders that the user confirmed. */
export interface ReleaseRequest {
  readonly epoch: string;
  readonly n: number;
  /** At least one, and at most {@link MOST_RELEASED}. */
  readonly ids: readonly string[];
}

export interface ReleaseReply {
  /** The number of holders that lost the lock. */
  readonly released: number;
}
