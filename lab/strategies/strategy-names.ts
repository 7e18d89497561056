/** Locks for the dispatcher, from none to the correct one. `docs/lab.md` says how each one fails. */
export const STRATEGIES = [
  'none',
  'setnx',
  'setnx-expire',
  'plain-delete',
  'owner-id',
  'owner-id-with-token',
  'redlock-unguarded',
  'with-lock',
  'with-thread',
  'counted-per-node',
  'readers-first',
  'permits',
  'shared',
  'skip-locked',
  'unique-constraint',
] as const;

export type StrategyName = (typeof STRATEGIES)[number];

/** Strategies for several concurrent holders. Each holder skips tasks whose rows another holder has locked. */
export const FOR_SEVERAL: ReadonlySet<string> = new Set<StrategyName>([
  'counted-per-node',
  'permits',
  'readers-first',
  'shared',
]);

/** Returns the lock of this package that replaces a strategy. */
export function cureOf(strategy: string): StrategyName {
  if (strategy === 'with-thread') return strategy;
  if (strategy === 'counted-per-node' || strategy === 'permits') return 'permits';
  return strategy === 'readers-first' || strategy === 'shared' ? 'shared' : 'with-lock';
}
