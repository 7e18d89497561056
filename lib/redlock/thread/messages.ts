import type { NodeVote } from '../../core/errors.js';
import type { CopiedLease } from '../../core/lease.js';
import type { ExtendFailure } from '../renewal-ports.js';

// The messages between the thread that holds the locks and the thread that renews them. Monotonic times are shared times
// (shared-clock.ts).

/** A slot in a block of shared memory. */
export interface Slot {
  readonly block: number;
  readonly slot: number;
}

/**
 * Names a lock by its slot and the number of its hand-over. A message can come late, when another lock has the slot: the
 * number shows that it does not concern that lock.
 */
export interface SlotName extends Slot {
  readonly handOver: number;
}

/**
 * A lock that the thread renews from now on. It is written to shared memory, or sent if it is too long for that. All
 * numbers are finite: JSON has no others.
 */
export interface Adopt extends SlotName {
  readonly kind: 'adopt';
  readonly lease: CopiedLease;
  /** The leases in whose place the lock has come; `undefined` for most locks. */
  readonly replaced: readonly CopiedLease[] | undefined;
  /** The shared time until which a release would keep the keys; `undefined` if it would not. */
  readonly keptUntil: number | undefined;
  readonly fencingToken: number;
  /** The ttl of the renewals, which may be shorter than the ttl of the lease. */
  readonly ttl: number;
  /** The end of the validity that was confirmed last. */
  readonly ends: { readonly shared: number; readonly wall: number };
  /** `true` if the last renewal has failed. */
  readonly isUnconfirmed: boolean;
  readonly maxHold:
    | { readonly since: { readonly shared: number; readonly wall: number }; readonly duration: number }
    | undefined;
  readonly maxBlocked: number;
  /** Milliseconds of the restart guard of the module at present. */
  readonly guard: number;
}

export interface Extend extends SlotName {
  readonly kind: 'extend';
  /** The number of the call, which its answer repeats. */
  readonly call: number;
  readonly ttl: number;
  readonly guard: number;
}

export type ToThread =
  /** The thread may connect its stores. */
  | { readonly kind: 'connect' }
  | Adopt
  /** A lock in shared memory is due before the thread would look. */
  | { readonly kind: 'look' }
  | Extend
  /** A new block of shared memory. */
  | { readonly kind: 'block'; readonly block: number; readonly memory: SharedArrayBuffer }
  /** The lock is released or lost. A lost lock may be released later, which a second message says. */
  | ({ readonly kind: 'end'; readonly isReleased: boolean } & SlotName)
  /** The thread that holds the lock renews it from now on. */
  | ({ readonly kind: 'return' } & SlotName)
  | { readonly kind: 'close' };

/** A node's vote without its error object, which another thread could not use. */
export interface SentVote extends Omit<NodeVote, 'error'> {
  readonly error?: string;
}

/** The reason why an extension failed, with votes that another thread can use. */
export type SentFailure =
  | Exclude<ExtendFailure, { readonly reason: 'unconfirmed' }>
  | { readonly reason: 'unconfirmed'; readonly votes: readonly SentVote[] };

export type FromThread =
  /** The stores of the thread are connected. */
  | { readonly kind: 'ready' }
  /** The thread does not use the slot any more. */
  | ({ readonly kind: 'dropped' } & SlotName)
  | ({ readonly kind: 'lost' } & SlotName)
  | ({ readonly kind: 'held' } & SlotName)
  /** A renewal has failed; the validity still ended at the shared time `end`. */
  | ({ readonly kind: 'unconfirmed'; readonly votes: readonly SentVote[]; readonly end: number } & SlotName)
  | { readonly kind: 'extended'; readonly call: number; readonly failure?: SentFailure }
  /** A node gave no usable answer to a request of the thread. */
  | { readonly kind: 'node-error'; readonly node: string; readonly message: string }
  /** A warning about a weak setup of a server. */
  | { readonly kind: 'warning'; readonly text: string }
  /** The stores are closed, and the thread ends. */
  | { readonly kind: 'closed' };

export function sentVotes(votes: readonly NodeVote[]): SentVote[] {
  return votes.map(({ error, ...vote }) => ({ ...vote, ...(error && { error: error.message }) }));
}

export function votesOf(votes: readonly SentVote[]): NodeVote[] {
  return votes.map(({ error, ...vote }) => ({
    ...vote,
    ...(error !== undefined && { error: new Error(error) }),
  }));
}

export function failureOf(sent: SentFailure): ExtendFailure {
  return sent.reason === 'unconfirmed' ? { reason: 'unconfirmed', votes: votesOf(sent.votes) } : sent;
}
