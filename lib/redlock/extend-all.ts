import { type Answer, asError, tellNodeError } from './fan-out.js';
import type { Lease } from '../core/lease.js';
import type { LockStore } from '../core/ports.js';
import { countOf, quorumOf } from './quorum.js';

/**
 * What the nodes say together of one claim: a quorum extended it; so many no longer have it that no quorum is left; or
 * neither, and it is not known what has become of it.
 */
export type Verdict =
  | { readonly kind: 'extended' }
  | { readonly kind: 'gone' }
  | { readonly kind: 'unconfirmed'; readonly answers: readonly Answer<boolean>[] };

const EXTENDED: Verdict = { kind: 'extended' };
const GONE: Verdict = { kind: 'gone' };

/**
 * Asks all nodes at once to extend several claims, and tells the verdict on each as soon as its own answers decide it:
 * a node that is slow with one claim delays no other that has its quorum. When `limit` milliseconds have passed, every
 * claim without a verdict gets one by the answers that are there (S3). Answers that arrive later are dropped.
 *
 * @param tell - called once for every claim, by its index
 * @returns the timer of the limit, which keeps the process alive unless that is changed
 */
export function extendAll(
  nodes: readonly LockStore[],
  claims: readonly Lease[],
  ttl: number,
  limit: number,
  tell: (index: number, verdict: Verdict) => void,
): NodeJS.Timeout {
  /** The answers for each claim that has no verdict yet. */
  const polls = new Map(claims.map((_, index): [number, Answer<boolean>[]] => [index, []]));

  const count = (index: number, answer: Answer<boolean>): void => {
    const answers = polls.get(index);
    if (!answers) return;
    answers.push(answer);
    const verdict = verdictOn(answers, nodes.length);
    if (!verdict) return;
    polls.delete(index);
    if (polls.size === 0) clearTimeout(timer);
    tell(index, verdict);
  };
  /** The silence of the nodes that are pending has been told. */
  let gaveUp = false;
  const giveUp = (): void => {
    const error = new Error(`no answer within ${Math.round(limit)} ms`);
    const told = new Set<LockStore>();
    for (const [index, answers] of polls) {
      const silent = nodes.filter((node) => !answers.some((answer) => answer.node === node));
      for (const node of silent) {
        if (!told.has(node)) tellNodeError(node, error);
        told.add(node);
        count(index, { node, error });
      }
    }
    gaveUp = true;
  };
  // When the thread was blocked, the answers may be there and unread: they come first.
  const timer = setTimeout(() => setImmediate(giveUp), limit);

  for (const node of nodes) {
    /** Claims that one command was for fail with one error: it is told once. */
    let last: Error | undefined;
    const failed = (index: number, error: Error): void => {
      if (error !== last && !gaveUp) tellNodeError(node, error);
      last = error;
      count(index, { node, error });
    };
    for (const [index, reply] of node.extend(claims, ttl).entries()) {
      reply.then(
        (extended) => count(index, { node, reply: extended }),
        (error: unknown) => failed(index, asError(error)),
      );
    }
  }
  return timer;
}

/** `undefined` while the answers to come can still turn it; never once all nodes have answered. */
function verdictOn(answers: readonly Answer<boolean>[], nodeCount: number): Verdict | undefined {
  const quorum = quorumOf(nodeCount);
  const sparable = nodeCount - quorum;
  const pending = nodeCount - answers.length;
  const extended = countReplies(answers, true);
  const missing = countReplies(answers, false);
  if (missing > sparable) return GONE;
  if (extended >= quorum) return EXTENDED;
  if (extended + pending < quorum && missing + pending <= sparable) return { kind: 'unconfirmed', answers };
  return undefined;
}

function countReplies(answers: readonly Answer<boolean>[], reply: boolean): number {
  return countOf(answers, (answer) => !answer.error && answer.reply === reply);
}
