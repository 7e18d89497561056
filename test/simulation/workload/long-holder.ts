import type { Application } from '../scene.js';
import { reasonOf } from './keys.js';

/** Holds one lock for as long as it can, and acquires it again after a loss. */
export async function holdLong(app: Application, ttl: number): Promise<void> {
  const { judge, plan, world } = app.scene;
  while (app.isWorking) {
    const call = judge.called(app.process, 'acquires long', 5_000);
    try {
      const lock = await app.locks.acquire('long', { ttl, ...(plan.thread && { renew: 'thread' }) });
      judge.settled(call, `got ${lock.id.slice(0, 6)}`);
      const holding = judge.holds(call, lock, { isLong: true });
      await app.untilLost(lock, plan.duration - world.time);
      judge.releases(holding);
      await lock.release();
    } catch (error) {
      judge.settled(call, reasonOf(error));
      await app.process.sleep(500);
    }
  }
}
