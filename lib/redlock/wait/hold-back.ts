import { askStore } from '../../core/ask-store.js';
import type { Store } from '../../core/ports.js';
import type { WaiterId } from '../../core/waiter-id.js';

/**
 * A store holds later callers back in favour of one waiter only. While that is another waiter, whose wait may end at any
 * time, this waiter calls `holdBack` again after this many milliseconds.
 */
const AGAIN_MS = 50;

/**
 * The states of {@link HoldBack}:
 *
 * - `off`: the nodes hold nobody back for this waiter
 * - `on`: the nodes were asked, and a node that holds callers back for another waiter is asked again
 * - `kept`: the nodes were asked, and none is asked again, because the present holders cannot starve the waiter
 */
type State = 'off' | 'on' | 'kept';

/**
 * Makes the nodes refuse later callers whose mode admits several holders, because such callers would starve the waiter
 * (S22). Every node is asked, because later callers could get a quorum without the queue node.
 */
export class HoldBack {
  #state: State = 'off';
  /** Stores that hold callers back for another waiter. */
  readonly #refusing = new Set<Store>();
  #timer: NodeJS.Timeout | undefined;

  /** @param waited - returns the milliseconds that the waiter has waited; `undefined` when nobody waits any more */
  constructor(
    private readonly stores: readonly Store[],
    private readonly id: WaiterId,
    private readonly waited: () => number | undefined,
  ) {}

  get isOn(): boolean {
    return this.#state !== 'off';
  }

  begin(): void {
    this.#state = 'on';
    for (const store of this.stores) void this.#ask(store);
  }

  /** Asks no node again. */
  keep(): void {
    if (this.#state === 'on') this.#state = 'kept';
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#refusing.clear();
  }

  end(): (Promise<void> | undefined)[] {
    this.keep();
    if (this.#state === 'off') return [];
    this.#state = 'off';
    return this.stores.map((store) => askStore(() => store.letPass?.(this.id), store));
  }

  async #ask(store: Store): Promise<void> {
    const waited = this.waited();
    if (waited === undefined) return;
    try {
      const stands = await store.holdBack?.(this.id, waited);
      if (stands === false && this.#state === 'on') this.#askAgain(store);
    } catch {
      // Ignore a failure: the node stops holding back by itself, and is asked again after a second.
    }
  }

  #askAgain(store: Store): void {
    this.#refusing.add(store);
    this.#timer ??= setTimeout(() => {
      const stores = [...this.#refusing];
      this.#timer = undefined;
      this.#refusing.clear();
      for (const each of stores) void this.#ask(each);
    }, AGAIN_MS).unref();
  }
}
