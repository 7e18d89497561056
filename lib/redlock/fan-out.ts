import { askStore } from '../core/ask-store.js';
import { asError, NoTimeError } from '../core/errors.js';
import { tellNodeError } from '../core/lock-events.js';
import { type AbortWatch, onAbort } from '../core/on-abort.js';
import type { LockStore } from '../core/ports.js';
import { firstNodes, hasNode, nodeSet, type NodeSet } from './node-set.js';

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

/** Collects the answers of the nodes. */
class Survey<T, Node extends LockStore> {
  readonly #answers: Answer<T, Node>[] = [];
  readonly #watches: readonly AbortWatch[];
  readonly #timer: NodeJS.Timeout;
  #pending: NodeSet;
  #isSettled = false;
  /** If `true`, the limit has passed, and the errors of the nodes without an answer were published. */
  #gaveUp = false;

  constructor(
    private readonly asked: readonly Node[],
    private readonly limit: number,
    ask: (node: Node) => Promise<T>,
    private readonly decided: (answers: readonly Answer<T, Node>[]) => boolean,
    signals: readonly AbortSignal[],
    private readonly resolve: (answers: readonly Answer<T, Node>[]) => void,
  ) {
    this.#pending = firstNodes(asked.length);
    // When the event loop was blocked, answers may have arrived that Node has not read yet. `setImmediate` lets Node
    // read these answers first.
    this.#timer = setTimeout(setImmediate, limit, () => this.#expire());
    this.#watches = signals.map((signal) => onAbort(signal, this));
    for (const [index, node] of asked.entries()) {
      askStore(ask, node).then(
        (reply) => this.#answered(index, reply),
        (error: unknown) => this.#answered(index, asError(error)),
      );
    }
  }

  #answered(index: number, reply: T | Error): void {
    if (reply instanceof Error && !this.#gaveUp) tellNodeError(this.asked[index]!.name, reply);
    this.#count(index, reply);
  }

  #count(index: number, reply: T | Error): void {
    if (this.#isSettled) return;
    const node = this.asked[index]!;
    this.#pending &= ~nodeSet(index);
    this.#answers.push(reply instanceof Error ? { node, error: reply } : { node, reply });
    if (this.#pending === 0 || this.decided(this.#answers)) this.#end();
  }

  #expire(): void {
    if (this.#isSettled) return;
    this.#gaveUp = true;
    const error = new NoTimeError(`no answer within ${this.limit} ms`);
    for (const [index, { name }] of this.asked.entries()) {
      if (this.#isSettled || !hasNode(this.#pending, index)) continue;
      tellNodeError(name, error);
      this.#count(index, error);
    }
  }

  aborted(): void {
    this.#end();
  }

  #end(): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    clearTimeout(this.#timer);
    for (const watch of this.#watches) watch.stop();
    this.resolve(this.#answers);
  }
}
