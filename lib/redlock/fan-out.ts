import { asError } from '../core/errors.js';
import { type AbortWatch, onAbort } from '../core/on-abort.js';
import type { LockStore } from '../core/ports.js';
import { firstNodes } from './node-set.js';
import { Nodes } from './nodes.js';
import { Poll } from './poll.js';

/** A node's answer: its reply, or the reason why there is no reply. */
export type Answer<T, Node = LockStore> =
  | { readonly node: Node; readonly reply: T; readonly error?: undefined }
  | { readonly node: Node; readonly reply?: undefined; readonly error: Error };

/**
 * Asks all nodes at the same time (S2). Resolves with the answers so far at the first of these events: `decided`
 * returns `true` for the answers; all nodes have answered; `limit` milliseconds have passed (S3); a signal aborts. A
 * node that missed the limit has an error as its answer. Never rejects. Keeps the process alive until it resolves.
 */
export function fanOut<T, Node extends LockStore>(
  nodes: readonly Node[],
  limit: number,
  ask: (node: Node) => Promise<T>,
  decided: (answers: readonly Answer<T, Node>[]) => boolean,
  signals: readonly AbortSignal[] = [],
): Promise<readonly Answer<T, Node>[]> {
  return new Promise((resolve) => new Survey(nodes, limit, ask, decided, signals, resolve));
}

/**
 * Calls `ask`, and turns an exception into a rejection: a store of the application may throw where it should reject.
 */
export function begun<Reply, Node>(ask: (node: Node) => Reply, node: Node): Reply | Promise<never> {
  try {
    return ask(node);
  } catch (error) {
    return Promise.reject(asError(error));
  }
}

/** Collects the answers of the nodes. */
class Survey<T, Node extends LockStore> extends Poll<T> {
  readonly #answers: Answer<T, Node>[] = [];
  readonly #watches: readonly AbortWatch[];

  constructor(
    private readonly asked: readonly Node[],
    limit: number,
    ask: (node: Node) => Promise<T>,
    private readonly decided: (answers: readonly Answer<T, Node>[]) => boolean,
    signals: readonly AbortSignal[],
    private readonly resolve: (answers: readonly Answer<T, Node>[]) => void,
  ) {
    super(new Nodes(asked));
    this.wait(firstNodes(asked.length), limit);
    this.#watches = signals.map((signal) => onAbort(signal, this));
    for (const [index, node] of asked.entries()) {
      begun(ask, node).then(
        (reply) => this.answered(index, reply),
        (error: unknown) => this.answered(index, asError(error)),
      );
    }
  }

  protected count(index: number, reply: T | Error): void {
    const node = this.asked[index] as Node;
    this.#answers.push(reply instanceof Error ? { node, error: reply } : { node, reply });
    if (this.pending === 0 || this.decided(this.#answers)) this.#end();
  }

  aborted(): void {
    this.#end();
  }

  #end(): void {
    if (this.isSettled) return;
    this.settle();
    for (const watch of this.#watches) watch.stop();
    this.resolve(this.#answers);
  }
}
