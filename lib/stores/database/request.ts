import type { Lease } from '../../core/lease.js';
import type { LockMode } from '../../core/lock-mode.js';
import type {
  AcquireReply,
  AcquireRequest,
  KeyHolder,
  KeyState,
  KeyWaiter,
  ReleaseRequest,
} from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';
import { NoTimeError } from '../../core/errors.js';
import { storedOwner } from './text.js';

// Requests to the functions of a database, and their results. The files in `sql/` of each database, such as
// `sql/acquire.ts`, describe the requests and the results.

/** The requests of one statement. */
export interface BatchRequest {
  readonly releases?: readonly AskedRelease[];
  readonly extensions?: readonly AskedExtension[];
  readonly acquisitions?: readonly AskedAcquisition[];
}

export interface AskedAcquisition {
  readonly id: string;
  readonly keys: readonly string[];
  readonly owner: string;
  readonly mode: LockMode;
  readonly since: number;
  readonly ttl: number;
  readonly deadline: number;
  readonly ordered: boolean;
  readonly proposal?: number;
  readonly permits?: number;
  readonly wish?: readonly number[] | undefined;
  readonly exactly?: boolean | undefined;
  readonly schedule?: string;
  readonly tick?: number;
  readonly waiter?: string;
  readonly waiter_owner?: string;
  readonly channel?: string;
  readonly waited?: number;
  readonly next?: number | undefined;
}

export interface AskedExtension {
  readonly id: string;
  readonly keys: readonly string[];
  readonly ttl: number;
  readonly slots?: readonly number[] | undefined;
}

export interface AskedRelease {
  readonly id: string;
  readonly keys: readonly string[];
  readonly pause: number;
  readonly keep: number;
  readonly schedule?: string;
  readonly tick?: number;
  readonly life?: number;
  readonly owner?: string;
}

export interface AskTerms {
  readonly keys: readonly string[];
  readonly ordered: boolean;
  /**
   * Deadline of the request, in milliseconds since 1970 on the server's clock: no caller waits for the answer after it.
   */
  readonly deadline: number;
  /** The channel for messages to this process. */
  readonly channel: string;
}

export function acquisitionOf(
  { lease, since, position, proposal, wish }: AcquireRequest,
  { keys, ordered, deadline, channel }: AskTerms,
): AskedAcquisition {
  const { id, owner, ttl, kind, tick } = lease;
  const plain = { id, keys, owner: storedOwner(owner), mode: kind.mode, since, ttl, deadline, ordered };
  if (kind.mode !== 'permits' && !tick && !(ordered && position) && proposal === 0) return plain;
  return {
    ...plain,
    proposal,
    ...(kind.mode === 'permits' ? { permits: kind.permits, wish: wish?.slots, exactly: wish?.exactly } : {}),
    ...(tick ? { schedule: tick.schedule, tick: tick.at } : {}),
    ...(ordered && position
      ? {
          waiter: waiterName(position.waiter),
          waiter_owner: storedOwner(position.waiter.owner),
          channel,
          waited: position.waited,
          next: position.next,
        }
      : {}),
  };
}

export function extensionOf({ id, slots }: Lease, keys: readonly string[], ttl: number): AskedExtension {
  return { id, keys, ttl, slots };
}

export function releaseOf({ lease, pause, isSecond }: ReleaseRequest, keys: readonly string[]): AskedRelease {
  const { id, keepFor, mark, owner } = lease;
  const released = { id, keys, pause, keep: keepFor };
  if (!mark || isSecond === true) return released;
  const { schedule, at, life } = mark;
  return { ...released, schedule, tick: at, life, owner: storedOwner(owner) };
}

/** The name of a waiter, in the queue and in messages. */
export function waiterName({ process, number }: WaiterId): string {
  return `${process}:${number}`;
}

/** A waiter as the function `waiting` returns it. */
export interface FoundWaiter {
  readonly waiter: string;
  readonly owner: string;
  readonly mode: KeyWaiter['mode'];
  readonly since: number;
}

export function keyWaiterOf({ waiter, owner, mode, since }: FoundWaiter): KeyWaiter {
  const [process = '', number] = waiter.split(':');
  return { process, number: Number(number), owner, mode, since: Math.round(since) };
}

/** A holder in an answer of the database. Without a token it is a waiter whose turn it is. */
export interface Named {
  readonly id: string;
  readonly owner: string;
  readonly remaining: number;
  readonly since?: number;
  readonly token?: number;
  readonly mode?: KeyHolder['mode'];
  readonly slot?: number | null;
}

/** The result of `acquire_lease`. */
export interface AcquisitionAnswer {
  readonly token?: number;
  readonly slots?: readonly number[] | null;
  readonly waits?: boolean;
  readonly first?: boolean;
  readonly holder?: Named;
  readonly others?: readonly Named[];
  readonly permits?: number | null;
  readonly ran?: Named;
  readonly late?: number;
  readonly error?: string;
}

/** The result of `turn`. */
export interface BatchAnswer {
  readonly at: number;
  readonly released: readonly boolean[];
  readonly extended: readonly boolean[] | null;
  readonly acquired: readonly AcquisitionAnswer[];
}

export function replyOf({
  token,
  slots,
  first,
  holder,
  others,
  permits,
  ran,
  late,
  error,
}: AcquisitionAnswer): AcquireReply | Error {
  if (token !== undefined) {
    const ofPermits = slots ? { slots, ...(permits ? { permits } : {}) } : {};
    return { granted: true, token, ...(first ? { nextIsFirst: true } : {}), ...ofPermits };
  }
  if (ran) return { granted: false, ran: true, holder: ran };
  if (holder) {
    const refused = { granted: false, holder: holderOf(holder) } as const;
    if (!others) return refused;
    return { ...refused, others: others.map(holderOf) as KeyHolder[], ...(permits ? { permits } : {}) };
  }
  if (late !== undefined)
    return new NoTimeError(`got the request ${Math.ceil(late)} ms too late, and did nothing`);
  return new Error(error ?? 'gave no answer');
}

function holderOf({ id, owner, remaining, since, token, mode, slot }: Named): KeyHolder {
  const holder = { id, owner, remaining };
  if (since === undefined || token === undefined || mode === undefined) return holder as KeyHolder;
  const known = { ...holder, since, fencingToken: token, mode };
  return typeof slot === 'number' ? { ...known, slot } : known;
}

/** The result of `read` for a key. */
export interface Found {
  readonly mode: KeyHolder['mode'];
  readonly permits: number;
  readonly holders: readonly Named[];
}

export function stateOf(found: Found | null): KeyState {
  if (!found || found.holders.length === 0) return undefined;
  const { mode, permits } = found;
  const holders = found.holders.map(holderOf);
  return mode === 'permits' ? { mode, permits, holders } : { mode, holders };
}
