import { setTimeout as sleep } from 'node:timers/promises';
import { buildClockShim } from '../clock-shim.js';
import { type Play, repeat, type Scenario } from '../scenario.js';

export const shim = buildClockShim();

/**
 * Shifts of the wall clock, in milliseconds. If the clock is ahead, keys expire early; if it is behind, keys expire
 * late.
 */
const STEPS = [5_000, 0, -5_000, 60_000, -60_000];

/** Shifts the clock of the first node, which started with the shim. */
export async function stepNodeClock(play: Play): Promise<void> {
  if (typeof shim === 'string') return;
  await repeat(play, 200, async (turn) => {
    shim.shift(STEPS[turn % STEPS.length]!);
    await sleep(100);
  });
  shim.shift(0);
}

export const nodeClock: readonly Scenario[] = [
  {
    name: 'the wall clock of one node steps by up to two minutes, both ways',
    stage: { nodes: 3, ...(typeof shim === 'string' ? {} : { firstNodeEnv: shim.env }) },
    ...(typeof shim === 'string' ? { skippedBecause: shim } : {}),
    clients: 4,
    client: { leastHold: 10, hold: 50 },
    seconds: [2, 10],
    // The promise in docs/safety.md excludes these steps of the clock, because a quorum may depend on this node. Tokens
    // still increase.
    overlapsBecause: 'the node expires keys early',
    faults: stepNodeClock,
  },
];
