import { setTimeout as sleep } from 'node:timers/promises';
import type { Lease } from '../core/lease.js';
import type { Nodes } from './nodes.js';
import { release } from './release.js';
import { nodeTimeLimit } from './validity.js';

/** Milliseconds between two attempts. */
const AGAIN_MS = 200;

/** Largest number of releases. Beyond this number, the oldest are dropped: the stores drop them then, too. */
const MOST_RELEASES = 10_000;

/** The number of releases from which the first look for lapsed ones takes place. */
const FEW_RELEASES = 100;

/**
 * Released locks that no quorum has confirmed, although their release leaves data on the nodes: the record of a tick, or
 * the keys for the rest of `minHold`. Without the record another process runs the tick again. While the process runs,
 * the stores repeat such releases. The shutdown waits for them here, because it ends the repetitions.
 */
export class UnstoredReleases {
  /** The last release for each schedule and each set of keys: it replaces the data of earlier releases. */
  readonly #releases = new Map<string, Unstored>();
  #lookAt = FEW_RELEASES;

  constructor(
    private readonly nodes: Nodes,
    private readonly nodeTimeout: number | undefined,
  ) {}

  /** Records a release that no quorum has confirmed. */
  note(lease: Lease): void {
    const unstored = { lease, since: performance.now() };
    if (!leavesData(unstored)) return;
    const name = JSON.stringify([lease.tick?.schedule, lease.keys]);
    this.#releases.delete(name);
    this.#releases.set(name, unstored);
    if (this.#releases.size < this.#lookAt) return;
    this.#dropLapsed();
    for (const oldest of this.#releases.keys()) {
      if (this.#releases.size <= MOST_RELEASES) break;
      this.#releases.delete(oldest);
    }
    // Look again only when the number has doubled, so that a look costs little for each release.
    this.#lookAt = Math.min(Math.max(FEW_RELEASES, 2 * this.#releases.size), MOST_RELEASES + FEW_RELEASES);
  }

  /** Repeats the releases until a quorum has confirmed each, or `total` milliseconds have passed. Never rejects. */
  async store(total: number): Promise<void> {
    const end = performance.now() + total;
    for (;;) {
      const left = end - performance.now();
      this.#dropLapsed();
      if (this.#releases.size === 0 || left <= 0) return;
      const { nodes, nodeTimeout } = this;
      const again = [...this.#releases].map(async ([name, { lease }]) => {
        const limit = Math.max(1, Math.min(nodeTimeLimit(lease.ttl, nodeTimeout), left));
        let isStored = true;
        await release(nodes, lease, limit, () => (isStored = false));
        if (isStored) this.#releases.delete(name);
      });
      nodes.flush();
      await Promise.all(again);
      if (this.#releases.size > 0) await sleep(Math.min(AGAIN_MS, Math.max(0, end - performance.now())));
    }
  }

  #dropLapsed(): void {
    for (const [name, unstored] of this.#releases) if (!leavesData(unstored)) this.#releases.delete(name);
  }
}

interface Unstored {
  readonly lease: Lease;
  /** The time of the release, by the monotonic clock. */
  readonly since: number;
}

/** `true` if the release still has something to store. */
function leavesData({ lease, since }: Unstored): boolean {
  if (lease.keepFor > 0) return true;
  return lease.mark !== undefined && performance.now() - since <= lease.pendingFor;
}
