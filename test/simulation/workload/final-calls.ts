import type { Application } from '../scene.js';
import { KEYS, reasonOf } from './keys.js';

const LIMIT_MS = 40_000;
/** Milliseconds that the waiters of all processes may need, one after the other. */
const PATIENCE_MS = 12_000;

/** After everything has healed, each process must get each lock, at the latest when the last lock has lapsed. */
export async function finalCalls(app: Application): Promise<void> {
  const { judge, world, plan, longestTtl, disturbances } = app.scene;
  if (app.isClosing || app.process.isDead) return;
  app.process.post(() => void callAll());

  async function callAll(): Promise<void> {
    for (const key of [...KEYS, 's', 'q', 'long']) {
      const call = judge.called(app.process, `acquires ${key} at the end`, LIMIT_MS);
      try {
        const lock = await app.locks.acquire(key, { ttl: 3_000, retry: { timeout: LIMIT_MS } });
        judge.settled(call, 'got it');
        const holding = judge.holds(call, lock);
        judge.releases(holding);
        await lock.release();
        const lapsed = Math.max(app.scene.lastEnd, plan.duration) + longestTtl;
        // TCP may give up a forgotten connection long after all faults.
        const quiet = app.links.map((link) => disturbances.quietSince(link));
        const due = Math.max(call.from, lapsed, ...quiet) + PATIENCE_MS;
        if (world.time > due)
          judge.find('starved', `${app.name} waited ${Math.round(world.time - call.from)} ms for ${key}`);
      } catch (error) {
        judge.settled(call, reasonOf(error));
        judge.find('starved', `${app.name} did not get ${key}: ${(error as Error).message}`);
      }
    }
  }
}
