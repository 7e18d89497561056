import { nodeErrors, tellNodeError } from '../core/lock-events.js';
import type { Store } from '../core/ports.js';
import { nextTick } from '../core/next-tick.js';
import { Outbox } from './outbox.js';
import { TimeLimits } from './time-limits.js';

/** The nodes of one {@link Redlock}, with the outbox of each. */
export class Nodes {
  readonly limits = new TimeLimits(true);
  /** The time limits of renewals. The timers of these limits do not keep the process alive. */
  readonly limitsOfRenewals = new TimeLimits(false);
  readonly outboxes: readonly Outbox[];
  /** `true` from the moment at which the stores begin to close: nothing is repeated afterwards. */
  isClosed = false;
  /**
   * The last reported error of each node. When a command fails, all requests in the command get the same error, which
   * is reported only once.
   */
  readonly #lastErrors: Error[] = [];
  #isPlanned = false;
  readonly #flushPlanned = (): void => {
    this.#isPlanned = false;
    this.flush();
  };

  constructor(readonly stores: readonly Store[]) {
    this.outboxes = stores.map((store, index) => new Outbox(store, index, () => this.#plan()));
  }

  /** The latest of the known clocks of the nodes, in milliseconds since 1970. */
  latestTime(): number {
    let latest = -Infinity;
    for (const store of this.stores) latest = Math.max(latest, store.time?.() ?? -Infinity);
    return latest === -Infinity ? Date.now() : latest;
  }

  /** `true` if a node has heard nothing from its server for a while, so that its next answer may take longer. */
  get isIdle(): boolean {
    for (const { idle } of this.stores) if (idle) return true;
    return false;
  }

  /** Publishes that a node gave no usable answer to a request. */
  tellError(node: number, error: Error): void {
    if (!nodeErrors.hasSubscribers || this.#lastErrors[node] === error) return;
    this.#lastErrors[node] = error;
    tellNodeError(this.stores[node]?.name ?? '', error);
  }

  /** Sends the collected requests now. */
  flush(): void {
    for (const outbox of this.outboxes) outbox.flush();
  }

  #plan(): void {
    if (this.#isPlanned) return;
    this.#isPlanned = true;
    nextTick(this.#flushPlanned);
  }
}
