/** How long the first in line has to take a lock that is free, in milliseconds, before others take it out of the line. */
const TURN_MS = 150;

/** With more keys than this those are dropped that were seen first. */
const MOST = 1_000;

interface Turn {
  readonly place: string;
  readonly since: number;
}

/** Since when it has been the turn of those who are first in line at free keys, as far as this process has seen. */
export class Turns {
  readonly #turns = new Map<string, Turn>();

  /** Milliseconds that the one in this place has left to take the key, which is free. */
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

  /** The key is not free. */
  end(key: string): void {
    this.#turns.delete(key);
  }
}
