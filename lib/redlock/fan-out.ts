import { type NodeErrorEvent, nodeErrors } from '../core/lock-events.js';
import type { LockStore } from '../core/ports.js';
import { onAbort } from '../core/on-abort.js';

/** A node's answer: its reply, or why there is none. */
export type Answer<T> =
  | { readonly node: LockStore; readonly reply: T; readonly error?: undefined }
  | { readonly node: LockStore; readonly reply?: undefined; readonly error: Error };

/** There was no time for a node's answer, so nothing is known of it. */
export class NoTimeError extends Error {}

/**
 * Asks all nodes at once (S2) and resolves with the answers so far as soon as `decided` says that they decide the
 * matter, when all nodes have answered, when `limit` milliseconds have passed (S3), or when a signal aborts,
 * whichever is first. Nodes that missed the limit are among the answers, with an error. Never rejects. Until then it
 * keeps the process alive.
 *
 * A reply that arrives later is dropped here; undoing what it did is the caller's business (S6).
 */
export function askAll<T>(
  nodes: readonly LockStore[],
  limit: number,
  ask: (node: LockStore) => Promise<T>,
  decided: (answers: readonly Answer<T>[]) => boolean,
  signals: readonly AbortSignal[] = [],
): Promise<readonly Answer<T>[]> {
  return new Promise((resolve) => {
    const answers: Answer<T>[] = [];
    let settled = false;
    /** The silence of the nodes that are pending has been told. */
    let gaveUp = false;

    const settle = (): void => {
      settled = true;
      clearTimeout(timer);
      for (const stopWaiting of stops) stopWaiting();
      resolve(answers);
    };
    const count = (answer: Answer<T>): void => {
      if (answer.error && !gaveUp) tellNodeError(answer.node, answer.error);
      if (settled) return;
      answers.push(answer);
      if (answers.length === nodes.length || decided(answers)) settle();
    };
    const giveUp = (): void => {
      if (settled) return;
      const error = new NoTimeError(`no answer within ${Math.round(limit)} ms`);
      const answered = new Set(answers.map(({ node }) => node));
      for (const node of nodes) {
        if (answered.has(node)) continue;
        tellNodeError(node, error);
        answers.push({ node, error });
      }
      gaveUp = true;
      settle();
    };
    // When the thread was blocked, the answers may be there and unread: they come first.
    const timer = setTimeout(setImmediate, limit, giveUp);

    const stops = signals.map((signal) => onAbort(signal, settle));
    for (const node of nodes) {
      ask(node).then(
        (reply) => count({ node, reply }),
        (error: unknown) => count({ node, error: asError(error) }),
      );
    }
  });
}

/** Tells whoever listens that a node gave no usable answer to a request. */
export function tellNodeError(node: LockStore, error: Error): void {
  if (!nodeErrors.hasSubscribers) return;
  const event: NodeErrorEvent = { node: node.name, error };
  nodeErrors.publish(event);
}

/** What was thrown, as an error. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
