/** The promises that the judge checks, by the names that reports use. */
export const RULES = {
  exclusion:
    'J1: at most one holder within reported validity, or readers only, or permits in different slots',
  token: 'J2 and J3: fencing tokens of locks that exclude each other increase in real-time order',
  lapsed: 'S4: no lock is returned that has lapsed',
  'late-call': 'J6: every call settles within its limits, without the pauses of its process',
  'never-settled': 'J6: every call settles',
  'late-loss': 'S10, S29: a loss is told at the end of the validity, and half a second after a suspend',
  'long-lost': 'S26: a lock that is held for long survives while at any moment a majority answers',
  'token-lowered': 'S26: a node that gets a held lock again does not store it with a lower token',
  revived: 'S15, S27: the thread that renews a lock does not store it again after its release',
  orphan: 'S6, S27: no record without a holder stays where nothing disturbs its node and its process',
  starved: 'after all has healed, every waiter gets its lock soon after the last lock has lapsed',
  'hand-over': 'without disturbances, a waiter gets a lock soon after its release',
  order: 'a later call does not pass a waiter on one node, nor do later readers pass a writer (S22)',
  polling: 'S8: a waiter does not ask again and again while nothing changes',
  'tick-twice': 'one tick of a schedule runs once',
  'nested-token': 'S18: a nested call that joins has the token of the outer call',
  'close-hangs': '`close()` settles',
  'left-behind': 'after `close()` no timer and no listener of the library is left',
  endless: 'no process repeats itself without end, within one turn of its event loop or over many',
  unhandled: 'J6: no rejection is unhandled, and the library throws no unexpected error',
} as const;

export type Rule = keyof typeof RULES;

/** A broken promise. */
export interface Finding {
  readonly rule: Rule;
  readonly text: string;
  readonly time: number;
}
