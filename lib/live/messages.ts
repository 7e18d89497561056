import type { LockMode } from '../core/lock-mode.js';

// What the server of the board tells its page. Times are milliseconds since 1970 by the clock of the server, but for `since`,
// which is by the clock of the holder.

/** One of those who hold a lock. */
export interface HolderRow {
  readonly id: string;
  readonly owner: string;
  readonly since: number;
  /** `null` when the key has no expiry. */
  readonly ends: number | null;
  /** How often it was seen to be extended. */
  readonly renewals: number;
  readonly token: number | undefined;
  readonly slot?: number;
  /** Whether the process of the board holds it. */
  readonly own?: true;
}

/** One of those who wait for a lock, in their order: a call of this process, or all of another process in one mode. */
export interface WaiterRow {
  readonly owner: string;
  /** By the clock of this process for its calls, for others by that of the store, if it has one. */
  readonly since: number;
  readonly mode: LockMode;
  /** The class and the method, of a waiter of this process. */
  readonly method?: string;
  readonly own?: true;
}

/** A lock as the table shows it. Long texts are cut; {@link LockDetails} has them whole. */
export interface LockRow {
  /** The number that the server knows it by. */
  readonly n: number;
  readonly key: string;
  /** The length of the key, if it is cut. */
  readonly length?: number;
  /** `null` when no quorum has it: what is left of an attempt or a release that did not reach all nodes. */
  readonly mode: LockMode | null;
  readonly permits?: number;
  /** First to end first. */
  readonly holders: readonly HolderRow[];
  /** How many holders there are beside these. */
  readonly more?: number;
  readonly waiters: readonly WaiterRow[];
  /** How many waiters there are beside these. */
  readonly moreWaiters?: number;
  /** How many nodes have it, of how many. */
  readonly nodes: readonly [have: number, of: number];
}

/** An extension: the lock, which of its holders, its end, and how often by now. */
export type Renewal = readonly [n: number, holder: number, ends: number | null, renewals: number];

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

/** The ticks of one method with `oncePerTick`, as this process saw them. */
export interface TickRow {
  readonly method: string;
  readonly key: string;
  readonly ran: number;
  readonly skipped: number;
  /** The last one that ran here. */
  readonly lastRun?: { readonly tick: number; readonly at: number };
  /** The last one that was skipped here, and who had run it. */
  readonly lastSkip?: { readonly tick: number; readonly at: number; readonly by?: string };
}

/** A name that this process campaigns for. */
export interface CampaignRow {
  readonly name: string;
  readonly isLeader: boolean;
}

/** What is told beside the locks. */
export interface BoardStatus {
  readonly nodes: NodesRow | undefined;
  /** Why the locks cannot be read at present; those that are shown are of before. */
  readonly problem?: string;
  readonly ticks: readonly TickRow[];
  readonly campaigns: readonly CampaignRow[];
  /** How many locks there are that are not sent. */
  readonly unsent: number;
}

/** A lock that the application has declared, also while nobody holds it. Milliseconds. */
export interface DeclaredRow {
  readonly name: string;
  /** `null` where a function gives them. */
  readonly keys: readonly string[] | null;
  readonly team?: string;
  readonly about?: string;
  readonly mode: LockMode;
  readonly permits?: number;
  /** The rest of its policy, in the words of its options. */
  readonly policy: string;
  /** The options that the module overrides. */
  readonly overridden: readonly string[];
}

/** What stays the same while the server runs. */
export interface BoardAbout {
  /** The readable name of this process; the command has none. */
  readonly owner?: string;
  /** The `name` of the `RedlockModule`. */
  readonly instance?: string;
  readonly allowForceRelease: boolean;
  readonly declared: readonly DeclaredRow[];
}

export interface Snapshot {
  readonly type: 'snapshot';
  /** What the numbers of rows belong to. */
  readonly epoch: string;
  readonly now: number;
  readonly about: BoardAbout;
  readonly status: BoardStatus;
  readonly rows: readonly LockRow[];
}

export interface Change {
  readonly type: 'change';
  readonly now: number;
  /** New ones, and those of which more has changed than their ends. */
  readonly rows?: readonly LockRow[];
  readonly renewed?: readonly Renewal[];
  readonly gone?: readonly number[];
  readonly status?: BoardStatus;
}

export type BoardMessage = Snapshot | Change;

/** What has happened to a lock, for the timeline. */
export type HistoryEntry =
  | {
      readonly kind: 'held';
      readonly key: string;
      readonly who: string;
      /** When it began to wait, if it did. */
      readonly asked?: number;
      readonly from: number;
      /** `undefined` while it lasts. */
      to?: number;
      /** How it ended: `'ended'` when nobody saw whether it was released or its ttl had passed. */
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

/** What the nodes say of a lock. */
export interface VoteRow {
  readonly node: string;
  readonly says: string;
}

/** A lock with all that is known of it. */
export interface LockDetails {
  readonly now: number;
  /** Whole. */
  readonly key: string;
  readonly holders: readonly HolderRow[];
  readonly waiters: readonly WaiterRow[];
  readonly votes: readonly VoteRow[];
  readonly history: readonly HistoryEntry[];
}

/** The timeline of all locks whose keys begin with a prefix. */
export interface PrefixHistory {
  readonly now: number;
  readonly history: readonly HistoryEntry[];
}

/** What the page sends to end holders of a lock: those whom its question named. */
export interface ReleaseRequest {
  readonly epoch: string;
  readonly n: number;
  readonly ids: readonly string[];
}

export interface ReleaseReply {
  /** How many of them were ended. */
  readonly released: number;
}
