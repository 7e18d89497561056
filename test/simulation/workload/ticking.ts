import { EPOCH } from '../world/world.js';
import type { Application } from '../scene.js';
import { attemptLimit } from './limits.js';
import { reasonOf } from './keys.js';

const EVERY_MS = 2_000;
const LIFE_MS = 60_000;

/** Runs a method once per tick in all processes together, as `@OncePerTick` does. */
export async function runTicks(app: Application): Promise<void> {
  const { judge, plan, world } = app.scene;
  const random = world.random(`ticks:${app.name}`);
  const [ttl = 1_000] = plan.ttls;
  for (let number = Math.ceil(world.time / EVERY_MS); app.isWorking; number++) {
    await app.process.sleep(Math.max(1, number * EVERY_MS - world.time + random.between(0, 100)));
    if (!app.isWorking) return;
    const call = judge.called(app.process, `tick ${number}`, attemptLimit(ttl, plan));
    const tick = { schedule: 'x', at: EPOCH + number * EVERY_MS, life: LIFE_MS, from: 'release' as const };
    const options = app.runtime.resolve({ ttl, retry: false });
    try {
      const lock = await app.runtime.acquire({ keys: ['tick'], options, origin: { label: 'tick' }, tick });
      judge.settled(call, `got ${lock.id.slice(0, 6)}`);
      const holding = judge.holds(call, lock);
      await app.process.sleep(random.scaled(1, 100));
      judge.runs(number, holding);
      judge.releases(holding);
      await lock.release();
    } catch (error) {
      judge.settled(call, reasonOf(error));
    }
  }
}
