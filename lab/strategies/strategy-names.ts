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
  'skip-locked',
  'unique-constraint',
] as const;

export type StrategyName = (typeof STRATEGIES)[number];
