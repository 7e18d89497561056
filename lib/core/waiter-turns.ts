import { TURN_MS } from './store-times.js';

/** Largest number of keys whose turns are remembered. With more keys, the oldest are dropped. */
const MOST = 1_000;

interface Turn {
  readonly entry: string;
  readonly since: number;
}

/** The start of the first waiter's turn at each free key, as this process has seen it. */
export class WaiterTurns {
  readonly #turns = new Map<string, Turn>();

  /** Milliseconds that the waiter has left to take the free key. */
  left(key: string, entry: string): number {
    let turn = this.#turns.get(key);
    if (turn?.entry !== entry) {
      turn = { entry, since: performance.now() };
      this.#turns.set(key, turn);
      for (const oldest of this.#turns.keys()) {
        if (this.#turns.size <= MOST) break;
        this.#turns.delete(oldest);
      }
    }
    return turn.since + TURN_MS - performance.now();
  }

  /** Records that the key is not free. */
  end(key: string): void {
    this.#turns.delete(key);
  }
}
