import type { Plan } from '../plans/plan.js';
import type { Rule } from './rules.js';

/**
 * The promises that do not hold in a world. Keys of a node end early when its clock is set forward, so others can get locks
 * that are held (docs/safety.md).
 */
export function notPromised({ events }: Plan): readonly Rule[] {
  return events.some(({ kind }) => kind === 'stepNode') ? ['exclusion', 'tick-twice'] : [];
}
