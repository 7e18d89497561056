/** The locks that the dispatcher can be run with, from none to the right one. `docs/lab.md` tells how each fails. */
export const STRATEGIES = [
  'none',
  'setnx',
  'setnx-expire',
  'plain-delete',
  'owner-id',
  'owner-id-with-token',
  'redlock-unguarded',
  'with-lock',
  'counted-per-node',
  'readers-first',
  'permits',
  'shared',
  'skip-locked',
  'unique-constraint',
] as const;

export type StrategyName = (typeof STRATEGIES)[number];

/** Strategies that several instances may hold at a time; the database keeps their tasks apart. */
export const FOR_SEVERAL: ReadonlySet<string> = new Set<StrategyName>([
  'counted-per-node',
  'permits',
  'readers-first',
  'shared',
]);

/** The lock of this package for those who use a strategy. */
export function cureOf(strategy: string): StrategyName {
  if (strategy === 'counted-per-node' || strategy === 'permits') return 'permits';
  return strategy === 'readers-first' || strategy === 'shared' ? 'shared' : 'with-lock';
}
