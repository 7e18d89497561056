/** Milliseconds that the first in line has to take a free lock, before others remove it from the queue. */
const TURN_MS = 150;

/** The most keys; beyond that the oldest are dropped. */
const MOST = 1_000;

interface Turn {
  readonly place: string;
  readonly since: number;
}

/** The start of the turn of the first in line at each free key, as far as this process has seen. */
export class Turns {
  readonly #turns = new Map<string, Turn>();

  /** Milliseconds that this waiter has left to take the key, which is free. */
  left(key: string, place: string): number {
    let turn = this.#turns.get(key);
    if (turn?.place !== place) {
      turn = { place, since: performance.now() };
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
