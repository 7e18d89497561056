import type { Scene } from '../scene.js';
import { KEYS } from '../workload/keys.js';

const LOOK_MS = 250;

/** Milliseconds after which a waiter has a free lock, if nothing disturbs any node or process. */
const LONGEST_MS = 1_500;

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
    const { world, judge } = this.scene;
    for (const key of KEYS) {
      const free = judge.freeSince(key);
      if (free === undefined || world.time - free < LONGEST_MS) continue;
      const waiting = [...judge.waitingFor(key)].find(({ from }) => from < free);
      if (!waiting || waiting.isReported) continue;
      waiting.isReported = true;
      const time = Math.round(world.time - free);
      judge.find('hand-over', `${waiting.process.name} waits for ${key}, which has been free for ${time} ms`);
    }
  }
}
