import type { LockHandle } from '../../../lib/core/lock-handle.js';
import type { Holding } from '../judge/judge.js';
import type { Random } from '../world/random.js';
import type { Application } from '../scene.js';
import { KEYS, reasonOf } from './keys.js';
import { nodeLimit } from './limits.js';

/** `forceRelease` ends locks of the last key, and with them a detached one. */
const HANDED = KEYS.slice(0, -1);

/** Acquires locks, and hands them to other processes, as a request does with the worker of a queue. */
export async function handOver(app: Application): Promise<void> {
  const { judge, plan, world } = app.scene;
  const random = world.random(`hand-over:${app.name}`);
  while (app.isWorking) {
    await app.process.sleep(random.scaled(1, plan.pace));
    const [key, ttl, renew] = [random.pick(HANDED), random.pick(plan.ttls), random.chance(0.7)];
    const [used, queued] = [random.scaled(1, 300), random.scaled(1, ttl)];
    const call = judge.called(app.process, `acquires ${key} to hand it over`, 5_000);
    try {
      const lock = await app.locks.acquire(key, { ttl, renew, retry: { timeout: 5_000 } });
      judge.settled(call, `got ${lock.id.slice(0, 6)} with the token ${lock.fencingToken}`);
      const holding = judge.holds(call, lock);
      await app.untilLost(lock, used);
      // After the time for work nobody attaches it.
      const pass = app.isWorking ? await detached(app, holding, ttl) : undefined;
      if (pass === undefined) await released(app, holding);
      // A detachment that a suspend held up may end after the time for work, too.
      else if (!app.isWorking)
        await attach(app, pass, { lock, ttl }, { retry: { timeout: 1_000 }, renew }, 0);
      // A queue may deliver a job twice.
      else
        for (let times = random.chance(0.3) ? 2 : 1; times > 0; times--)
          deliver(app, random, queued, pass, { lock, ttl });
    } catch (error) {
      judge.settled(call, reasonOf(error));
    }
  }
}

/** A lock that was detached. */
interface Handed {
  readonly lock: LockHandle;
  readonly ttl: number;
}

async function detached(app: Application, holding: Holding, ttl: number): Promise<string | undefined> {
  const { judge, plan, longestTtl } = app.scene;
  const { lock } = holding;
  // `detach` waits for a renewal, and asks the nodes twice.
  const limit = 3 * nodeLimit(longestTtl, plan) + 100;
  const call = judge.called(app.process, `detaches ${lock.keys}`, limit);
  try {
    const pass = await lock.detach();
    judge.settled(call, 'detached');
    judge.detaches(holding, ttl);
    return pass;
  } catch (error) {
    judge.settled(call, reasonOf(error));
    // The lock stays with its handle.
    await app.untilLost(lock, ttl);
    return undefined;
  }
}

async function released(app: Application, holding: Holding): Promise<void> {
  const { judge, plan, longestTtl } = app.scene;
  const { lock } = holding;
  judge.releases(holding);
  const call = judge.called(app.process, `releases ${lock.keys}`, nodeLimit(longestTtl, plan));
  await lock.release();
  judge.settled(call, 'released');
}

/** Gives the pass to some process. */
function deliver({ scene }: Application, random: Random, after: number, pass: string, from: Handed): void {
  const index = random.whole(0, scene.apps.length - 1);
  const [retries, renew, held] = [
    random.pick([300, 1_000, 5_000]),
    random.chance(0.7),
    random.scaled(1, 1_000),
  ];
  scene.world.after(after, () => {
    const app = scene.apps[index];
    app?.process.post(() => {
      if (app.isWorking) void attach(app, pass, from, { retry: { timeout: retries }, renew }, held);
    });
  });
}

async function attach(
  app: Application,
  pass: string,
  { lock: from, ttl }: Handed,
  options: { readonly retry: { readonly timeout: number }; readonly renew: boolean },
  held: number,
): Promise<void> {
  const { judge, plan } = app.scene;
  const limit = options.retry.timeout + 2 * nodeLimit(ttl, plan);
  const call = judge.called(app.process, `attaches ${from.keys}`, limit);
  try {
    const lock = await app.locks.attach(pass, options);
    judge.settled(call, `got ${lock.id.slice(0, 6)} with the token ${lock.fencingToken}`);
    const holding = judge.holds(call, lock, { from });
    await app.untilLost(lock, held);
    await released(app, holding);
  } catch (error) {
    judge.settled(call, reasonOf(error));
  }
}
