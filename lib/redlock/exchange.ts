import { elapsedSince, type Instant, now } from '../core/clock.js';
import { LockUnavailableError, type NodeVote, RedlockError, type RedlockErrorCode } from '../core/errors.js';
import { Lease } from '../core/lease.js';
import { RELEASE_AGAIN_MS } from '../core/pending-releases.js';
import { quoted } from '../core/printable.js';
import { Extension, type Verdict } from './extend.js';
import { type Answer, fanOut } from './fan-out.js';
import type { Nodes } from './nodes.js';
import { quorumOf } from './quorum.js';
import { drop, type DropTerms, STRAY_MARGIN_MS } from './stray-releases.js';

/** Parameters of {@link exchange}. */
interface ExchangeTerms {
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
type ExchangeVerdict = (
  | { readonly kind: 'exchanged'; readonly sent: Instant }
  | { readonly kind: 'gone' }
  | { readonly kind: 'unconfirmed'; readonly votes: readonly NodeVote[] }
) & {
  /** `true` if a node may still carry out the exchange, until its deadline (S16). */
  readonly mayComeLater: boolean;
  /** `true` if a node has answered that it keeps the lease, or kept one in whose place it comes. */
  readonly isFound: boolean;
};

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
  const known = {
    mayComeLater: answers.filter(({ reply }) => reply !== undefined).length < stores.length,
    isFound: count(answers, true) > 0,
  };
  if (signals?.some(({ aborted }) => aborted)) return { kind: 'unconfirmed', votes: [], ...known };
  if (count(answers, false) >= quorum) return { kind: 'gone', ...known };
  if (count(answers, true) < quorum) {
    const votes = stores.map((store): NodeVote => {
      const answer = answers.find(({ node }) => node === store);
      if (answer?.error) return { node: store.name, vote: 'error', error: answer.error };
      return { node: store.name, vote: !answer ? 'pending' : answer.reply === true ? 'granted' : 'free' };
    });
    return { kind: 'unconfirmed', votes, ...known };
  }
  const sent = now();
  const verdict = await new Promise<Verdict>((resolve) => {
    new Extension(nodes, { lease, extended: resolve }, lease.ttl, limit, sent);
  });
  return verdict.kind === 'extended'
    ? { kind: 'exchanged', sent, ...known }
    : { kind: 'unconfirmed', votes: verdict.kind === 'unconfirmed' ? verdict.votes : [], ...known };
}

/**
 * Puts the lease that others may attach, or the lease of the holder, in the place of an attempt that has failed. A request
 * of that attempt which was not answered may still be carried out until its deadline, so this is repeated after the
 * deadline, until each node has answered or the ttl has passed (S27). Resolves after the first time.
 */
export function giveBack(
  nodes: Nodes,
  from: Lease,
  to: Lease,
  { limit, mayComeLater }: DropTerms,
): Promise<void> {
  from.ended = true;
  const { stores } = nodes;
  const began = now();
  const comesUntil = mayComeLater ? limit + STRAY_MARGIN_MS : 0;
  const request = { lease: to, replaces: [from.id], since: to.since, limit, guard: 0 };
  const ask = async (): Promise<void> => {
    if (nodes.isClosed) return undefined;
    const sent = elapsedSince(began);
    // A released lock must not come back.
    if (to.ended) return drop(nodes, from, { limit, mayComeLater: sent < comesUntil });
    const answers = await fanOut(
      stores,
      limit,
      (store) => store.exchange!(request),
      () => false,
    );
    const isAnswered = answers.filter(({ reply }) => reply !== undefined).length === stores.length;
    if (isAnswered && sent >= comesUntil) return undefined;
    const passed = elapsedSince(began);
    if (passed < from.ttl)
      setTimeout(() => void ask(), isAnswered ? Math.max(comesUntil - passed, 0) : RELEASE_AGAIN_MS).unref();
    return undefined;
  };
  return ask();
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
