import type { LockMode } from '../../../lib/core/lock-mode.js';
import type { Scene } from '../scene.js';
import { KEYS } from '../workload/keys.js';
import type { Call } from './judge.js';

/** Milliseconds by which a call may pass an earlier one, which first has to enter the queue and to set its marks. */
const HEAD_START_MS = 1_000;

/** The number of later readers that may pass a waiting writer. */
const MOST_READERS = 3;

/** Finds calls that pass earlier waiters, while nothing disturbs any node or process (docs/waiting.md). */
export class OrderWatch {
  /** The number of later readers that have passed each waiting writer. */
  readonly #passed = new Map<Call, number>();

  constructor(private readonly scene: Scene) {}

  start(): void {
    this.scene.judge.onGrant = (call, mode) => this.#granted(call, mode);
  }

  #granted(call: Call, mode: LockMode): void {
    const { key, process } = call;
    if (key === undefined) return;
    const { judge, plan } = this.scene;
    // Readers that asked at the moment of a release may pass; after the next writer others may do so.
    if (mode === 'exclusive') for (const waiting of judge.waitingFor(key)) this.#passed.delete(waiting);
    for (const waiting of judge.waitingFor(key)) {
      if (waiting === call || waiting.from > call.from - HEAD_START_MS) continue;
      const isReader = mode === 'shared' && waiting.mode === 'exclusive' && this.#haveOneQueue;
      // Only one node promises the order of waiters of the same kind.
      const isOrdered = plan.nodes === 1 && KEYS.some((each) => each === key);
      if (!(isReader || isOrdered) || !this.#isCalmSince(waiting.from)) continue;
      // A wall clock that is set forward looks like a suspend, so that the call seems to have waited for longer.
      if (process.setForwardAt > waiting.from) continue;
      // A process in whose place another one has started may still be paused.
      if (waiting.process.stalledSince(waiting.from) > 0) continue;
      const passed = (this.#passed.get(waiting) ?? 0) + 1;
      this.#passed.set(waiting, passed);
      if (isReader && passed <= MOST_READERS) continue;
      const ahead = Math.round(call.from - waiting.from);
      judge.find(
        'order',
        `${process.name} got ${key} before ${waiting.process.name}, which has waited ${ahead} ms longer`,
      );
    }
  }

  /** Processes that list another node first have another queue, and learn of waiters only by their marks. */
  get #haveOneQueue(): boolean {
    return new Set(this.scene.plan.lists?.map(([first]) => first)).size < 2;
  }

  #isCalmSince(since: number): boolean {
    const { disturbances, apps, links } = this.scene;
    return (
      links(undefined, undefined).every((link) => disturbances.quietSince(link) < since) &&
      apps.every(({ process, isClosing }) => !isClosing && process.stalledSince(since) === 0)
    );
  }
}
