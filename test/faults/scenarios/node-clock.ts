import { setTimeout as sleep } from 'node:timers/promises';
import { buildClockShim } from '../clock-shim.js';
import { type Play, repeat, type Scenario } from '../scenario.js';

export const shim = buildClockShim();

/** Forwards, the node lets its keys go early; backwards, it keeps them longer. */
const STEPS = [5_000, 0, -5_000, 60_000, -60_000];

/** Of the first node, which was started with the shim. */
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
    // A holder may have just a quorum, and this node in it: such steps are excluded from what is promised. Tokens are not.
    overlapsBecause: 'the node lets go early',
    faults: stepNodeClock,
  },
];
