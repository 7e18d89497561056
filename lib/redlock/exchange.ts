import { type Instant, now } from '../core/clock.js';
import { LockUnavailableError, type NodeVote, RedlockError, type RedlockErrorCode } from '../core/errors.js';
import { Lease } from '../core/lease.js';
import { quoted } from '../core/printable.js';
import { Extension, type Verdict } from './extend.js';
import { type Answer, fanOut } from './fan-out.js';
import type { Nodes } from './nodes.js';
import { quorumOf } from './quorum.js';
import { release } from './release.js';

/** Milliseconds after the deadline of an exchange until no node carries it out: its clock is only estimated. */
const STRAY_MARGIN_MS = 200;

/** Parameters of {@link exchange}. */
export interface ExchangeTerms {
  /** The ids in whose place the lease comes. */
  readonly replaces: readonly string[];
  /** Milliseconds within which a node must answer each of the two requests. */
  readonly limit: number;
  /** Milliseconds of the restart guard (S12). */
  readonly guard: number;
  readonly signals?: readonly AbortSignal[];
}

/**
 * The combined answer of the nodes to an exchange. `'exchanged'`: a quorum keeps the lease for its ttl from `sent` on.
 * `'gone'`: a quorum has none of the leases that it replaces. `'unconfirmed'`: the answers show neither.
 */
export type ExchangeVerdict =
  | { readonly kind: 'exchanged'; readonly sent: Instant }
  | { readonly kind: 'gone' }
  | { readonly kind: 'unconfirmed'; readonly votes: readonly NodeVote[] };

/**
 * Puts a lease in the place of others on a quorum of nodes, and then extends it. Only the extension counts, from its own
 * send (S9): a node that did not put the lease in place has nothing to extend. So a lost or late answer to the first
 * request can make the exchange fail, but never seem to succeed. Two leases cannot both be extended by a quorum: these
 * quorums share a node, which keeps one of both at a time, and gives it away only by a request of its owner.
 *
 * The lease is new for each attempt (S5). The caller must {@link giveBack} a lease that is not used.
 */
export async function exchange(nodes: Nodes, lease: Lease, terms: ExchangeTerms): Promise<ExchangeVerdict> {
  const { limit, guard, replaces, signals } = terms;
  const { stores } = nodes;
  const quorum = quorumOf(stores.length);
  const count = (answers: readonly Answer<boolean>[], reply: boolean): number =>
    answers.filter((answer) => answer.reply === reply).length;
  const answers = await fanOut(
    stores,
    limit,
    (store) => store.exchange!({ lease, replaces, since: lease.since, limit, guard }),
    (soFar) => count(soFar, true) >= quorum || count(soFar, false) >= quorum,
    signals,
  );
  if (signals?.some(({ aborted }) => aborted)) return { kind: 'unconfirmed', votes: [] };
  if (count(answers, false) >= quorum) return { kind: 'gone' };
  if (count(answers, true) < quorum) {
    const votes = stores.map((store): NodeVote => {
      const answer = answers.find(({ node }) => node === store);
      if (answer?.error) return { node: store.name, vote: 'error', error: answer.error };
      return { node: store.name, vote: !answer ? 'pending' : answer.reply === true ? 'granted' : 'free' };
    });
    return { kind: 'unconfirmed', votes };
  }
  const sent = now();
  const verdict = await new Promise<Verdict>((resolve) => {
    new Extension(nodes, { lease, extended: resolve }, lease.ttl, limit, sent);
  });
  return verdict.kind === 'extended'
    ? { kind: 'exchanged', sent }
    : { kind: 'unconfirmed', votes: verdict.kind === 'unconfirmed' ? verdict.votes : [] };
}

/**
 * Puts the lease that others may attach, or the lease of the holder, in the place of an attempt that has failed. A request
 * of that attempt which was not answered may still be carried out until its deadline (S16). So the request is repeated after
 * it, if a node has not answered (S27).
 */
export async function giveBack(
  nodes: Nodes,
  from: Lease,
  to: Lease,
  limit: number,
  busy: () => () => void,
): Promise<void> {
  from.ended = true;
  const { stores } = nodes;
  const done = busy();
  const request = { lease: to, replaces: [from.id], since: to.since, limit, guard: 0 };
  const ask = (): Promise<readonly Answer<boolean>[]> =>
    fanOut(
      stores,
      limit,
      (store) => store.exchange!(request),
      () => false,
    );
  const answers = await ask();
  done();
  if (answers.every(({ reply }) => reply === true)) return;
  setTimeout(() => {
    // A released lock must not come back.
    if (to.ended) void release(nodes, from, limit, () => undefined);
    else void ask();
  }, limit + STRAY_MARGIN_MS).unref();
}

/** @throws RedlockError naming the first store that has no `exchange` */
export function checkCanExchange(
  { stores }: Nodes,
  keys: readonly string[],
  code: RedlockErrorCode,
  what: string,
): void {
  const unable = stores.find((store) => !store.exchange);
  if (!unable) return;
  throw new RedlockError(
    code,
    `The lock on ${quoted(keys)} is not ${what}: ${unable.name} cannot put one lease in the place of another ` +
      '(`LeaseExchange` of nestjs-redlock/store). Use another store for locks that go from one process to another.',
  );
}

/** Makes the error of an exchange that no quorum has confirmed. */
export function notConfirmed(
  keys: readonly string[],
  votes: readonly NodeVote[],
  what: string,
): LockUnavailableError {
  return new LockUnavailableError(
    keys,
    'fewer than a quorum of nodes confirmed it in time',
    votes,
    `${what} the lock on ${quoted(keys)}`,
  );
}
