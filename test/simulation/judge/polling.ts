import type { Scene } from '../scene.js';

const WINDOW_MS = 2_000;

/**
 * The number of attempts of one process within a window in which nothing changes. With the default pause of 200 ms, ten
 * are usual. After a split vote the pause is 10 to 20 ms at least, and the answer takes some time, too.
 */
const MOST_ATTEMPTS = 100;

/** Milliseconds by which a slow node may delay requests, so that those of several calls come together. */
const DELAYED_MS = 10_000;

interface Attempts {
  readonly from: number;
  last: string;
  count: number;
}

/** Finds waiters that ask much more often than docs/waiting.md says. */
export class PollingWatch {
  readonly #attempts = new Map<string, Attempts>();

  constructor(private readonly scene: Scene) {}

  start(): void {
    for (const server of this.scene.servers)
      server.onAcquire = ({ id, owner, keys }) => this.#asked(server.name, owner, id, keys);
  }

  #asked(server: string, owner: string, id: string, keys: readonly string[]): void {
    const { judge, world } = this.scene;
    const name = `${server}, ${owner}, ${keys}`;
    const attempts = this.#attempts.get(name);
    const changed = Math.max(...keys.map((key) => judge.changedAt.get(key) ?? 0));
    if (!attempts || changed >= attempts.from || world.time - attempts.from > WINDOW_MS) {
      this.#attempts.set(name, { from: world.time, last: id, count: 1 });
      return;
    }
    // The same id comes again in a further round of one attempt.
    if (attempts.last === id) return;
    attempts.last = id;
    attempts.count++;
    if (attempts.count === MOST_ATTEMPTS + judge.triesSince(owner, keys, attempts.from - DELAYED_MS)) {
      const time = Math.round(world.time - attempts.from);
      judge.find('polling', `${attempts.count} attempts within ${time} ms: ${name}`);
    }
  }
}
