import type { LockHandle } from '../../../lib/core/lock-handle.js';
import type { Application } from '../scene.js';
import { attemptLimit } from './limits.js';

/** The method of a leader: it leads for a while, or until it loses its term. */
export async function leads(
  app: Application,
  term: { readonly lock: LockHandle; readonly signal: AbortSignal },
): Promise<void> {
  const { judge, plan, world, longestTtl } = app.scene;
  const call = judge.called(app.process, 'leads', 0);
  judge.settled(call, `term ${term.lock.fencingToken}`);
  const asked = call.from - attemptLimit(longestTtl, plan);
  const holding = judge.holds(call, term.lock, { asked });
  await app.untilLost(term, world.random(`lead:${app.name}`).scaled(50, plan.terms ?? 10_000));
  judge.releases(holding);
}
