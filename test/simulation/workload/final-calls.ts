import type { Application } from '../scene.js';
import { KEYS, reasonOf } from './keys.js';

/** The least time for a call, in milliseconds. */
const LIMIT_MS = 40_000;
/** Milliseconds that the waiters of all processes may need, one after the other. */
const PATIENCE_MS = 12_000;

/** After everything has healed, each process must get each lock, at the latest when the last lock has lapsed. */
export async function finalCalls(app: Application): Promise<void> {
  const { judge, world, plan, longestTtl, disturbances, apps } = app.scene;
  if (app.isClosing || app.process.isDead) return;
  app.process.post(() => void callAll());

  /** The time since which nothing disturbs this process: TCP may give up a forgotten connection long after all faults. */
  function quietAt(): number {
    return Math.max(...app.links.map((link) => disturbances.quietSince(link)));
  }

  /** The end of the last pause of a process, which then still acquires the locks that it waits for. */
  function awakeAt(): number {
    return Math.max(0, ...apps.flatMap(({ process }) => process.stalls.map(({ to }) => to)));
  }

  async function callAll(): Promise<void> {
    for (const key of [...KEYS, 's', 'q', 'long']) {
      // The guard of a node may begin only when TCP has given up a connection that was forgotten before.
      const limit = Math.ceil(Math.max(LIMIT_MS, quietAt() - world.time + PATIENCE_MS));
      const call = judge.called(app.process, `acquires ${key} at the end`, limit);
      try {
        const lock = await app.locks.acquire(key, { ttl: 3_000, retry: { timeout: limit } });
        judge.settled(call, 'got it');
        const holding = judge.holds(call, lock);
        judge.releases(holding);
        await lock.release();
        // The holder of the long lock measures its time with a clock that may be slow.
        const worksUntil = Math.max(plan.duration * (1 + plan.drift), awakeAt());
        const lapsed = Math.max(app.scene.lastEnd, worksUntil) + longestTtl;
        const due = Math.max(call.from, lapsed, quietAt()) + PATIENCE_MS;
        if (world.time > due)
          judge.find('starved', `${app.name} waited ${Math.round(world.time - call.from)} ms for ${key}`);
      } catch (error) {
        judge.settled(call, reasonOf(error));
        judge.find('starved', `${app.name} did not get ${key}: ${(error as Error).message}`);
      }
    }
  }
}
