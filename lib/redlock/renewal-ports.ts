import type { Instant } from '../core/clock.js';
import type { Lease } from '../core/lease.js';
import type { NodeVote } from '../core/errors.js';

// The ports between a lock and the thread that renews it (thread/).

/** The reason why the thread does not renew a lock any more. */
export const WHY = { none: 0, blocked: 1, maxHold: 2, gone: 3 } as const;

export type Why = (typeof WHY)[keyof typeof WHY];

/** The reason why an extension by the thread failed. */
export type ExtendFailure =
  | { readonly reason: 'lost' }
  /** The thread that holds the lock renews it, and has to extend it itself. */
  | { readonly reason: 'returned' }
  | { readonly reason: 'unconfirmed'; readonly votes: readonly NodeVote[] }
  | { readonly reason: 'other'; readonly message: string };

/** A held lock whose renewal another thread takes over. */
export interface HandedOver {
  readonly lease: Lease;
  /** The leases in whose place the lock has come, which some nodes may still keep. */
  readonly replaced: readonly Lease[] | undefined;
  readonly fencingToken: number;
  /** The ttl of the renewals. */
  readonly ttl: number;
  /** The end of the validity that was confirmed last. */
  readonly end: Instant;
  /** `true` if the last renewal has failed. */
  readonly isUnconfirmed: boolean;
  readonly maxHold: { readonly since: Instant; readonly duration: number } | undefined;
  readonly maxBlocked: number;
}

/** Told by the thread about a lock that it renews. */
export interface RemotelyRenewed {
  /** Called when the end of the validity may have come: the lock looks at the clock. */
  isHeld(): boolean;
  /** Called when a renewal failed, with the votes, and when one succeeds again. */
  renewedElsewhere(votes?: readonly NodeVote[]): void;
  /** Called when the thread does not renew the lock any more: the lock renews itself from now on. */
  renewHere(): void;
}

/** The renewal of one lock by another thread (S9: from the hand-over on only that thread extends the lock). */
export interface RemoteRenewal {
  /** The end of the validity; `undefined` if it is still the one that the last call returned. */
  newEnd(): Instant | undefined;
  /** The reason why the thread does not renew the lock at present. */
  readonly why: Why;
  /** Extends the lock in the turn of the thread. Resolves to the reason of a failure. */
  extend(ttl: number): Promise<ExtendFailure | undefined>;
  /**
   * Ends the renewal, and with it a call of {@link extend}. `isReleased` is `false` for a lost lock, whose keys expire
   * with their ttl. Called again if that lock is released later: a node may have stored it once more meanwhile (S15).
   */
  end(isReleased: boolean): void;
  /** Takes the renewal back from a thread that cannot renew the lock, or does not answer. */
  takeBack(): void;
}

/** Takes over the renewals of a module. */
export interface RenewalThread {
  /**
   * Announces that locks with `renew: 'thread'` will be acquired.
   *
   * @param isCertain - `false` if they may be acquired
   * @throws TypeError when a thread cannot open the nodes of the module, if it is certain
   */
  foresee(isCertain: boolean): void;
  /**
   * Starts the thread if it is announced, so that it loads its program while the nodes connect. Never throws.
   */
  begin(): void;
  /**
   * Connects the thread if it is announced, else with its announcement. Called when the nodes are connected. Resolves
   * when the thread can take over locks, and at the latest after some seconds. Never rejects.
   */
  open(): Promise<void>;
  /** Ends the thread. Takes a few seconds at most. Never rejects. */
  close(): Promise<void>;
  /** @param task - called when the thread has become ready to take over locks */
  whenReady(task: () => void): void;
  /** Takes over the renewal; `undefined` while the thread cannot renew, so that the lock renews itself. */
  takeOver(lock: RemotelyRenewed, handedOver: HandedOver): RemoteRenewal | undefined;
  /** Called when this thread has renewed a lock that the other thread could not renew. */
  outdone(): void;
}

/** Receives the state of a lock that this thread renews for another one. */
export interface Mirror {
  /** `false` if the thread that holds the lock renews it again, or has released it: nothing more may be sent for it. */
  readonly isRenewed: boolean;
  /** `false` while the thread that holds the lock does not run, and the lock must not be renewed. */
  readonly mayRenew: boolean;
  /** Called with each new end of the validity. */
  ends(end: Instant): void;
  /** Called when the lock will not be renewed any more, or is again. */
  because(why: Why): void;
  /** Called when a renewal failed, with the votes, and when one succeeds again. */
  renewed(votes?: readonly NodeVote[]): void;
  lost(): void;
}
