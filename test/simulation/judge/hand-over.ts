import type { Scene } from '../scene.js';
import { KEYS } from '../workload/keys.js';

const LOOK_MS = 250;

/** Milliseconds after which a waiter has a free lock, if nothing disturbs any node or process. */
const LONGEST_MS = 1_500;

/** Milliseconds after which a waiter asks all nodes, and not only the queue node. */
const ALL_ASKED_MS = 5_000;

/** Milliseconds for which a request of a process that has ended may be under way. */
const UNDER_WAY_MS = 1_000;

/** Finds waiters that nobody tells that their lock is free. */
export class HandOverWatch {
  constructor(private readonly scene: Scene) {}

  start(): void {
    const { world, judge } = this.scene;
    world.after(LOOK_MS, () => {
      if (judge.isOver) return;
      if (this.#isCalm) this.#look();
      this.start();
    });
  }

  get #isCalm(): boolean {
    const { world, disturbances, apps, links } = this.scene;
    const since = world.time - LONGEST_MS;
    return (
      links(undefined, undefined).every((link) => disturbances.quietSince(link) < since) &&
      apps.every(({ process, isClosing }) => !isClosing && process.stalledSince(since) === 0)
    );
  }

  #look(): void {
    const { world, judge, lastEnd, longestTtl } = this.scene;
    // A process that was killed while it acquired a lock has it for its ttl, and nobody knows of that.
    const unknown = lastEnd + UNDER_WAY_MS;
    for (const key of KEYS) {
      const free = judge.freeSince(key);
      if (free === undefined) continue;
      // The queue node alone may keep the lock of a killed process. If the first waiters there wait for another key as well,
      // nobody tells those behind them: docs/waiting.md.
      const isTold = world.time > unknown + longestTtl || !judge.isWantedWithOthers(key, free);
      if (world.time - free < LONGEST_MS + (isTold ? 0 : ALL_ASKED_MS)) continue;
      if (free < unknown && world.time < unknown + longestTtl) continue;
      // A process in whose place another one has started may still be paused.
      const waiting = [...judge.waitingFor(key)].find(
        ({ from, process }) => from < free && process.stalledSince(free) === 0,
      );
      if (!waiting || waiting.isReported) continue;
      waiting.isReported = true;
      const time = Math.round(world.time - free);
      judge.find('hand-over', `${waiting.process.name} waits for ${key}, which has been free for ${time} ms`);
    }
  }
}
