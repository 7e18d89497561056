import { setTimeout as sleep } from 'node:timers/promises';
import { machineTime } from './events.js';
import { type ClientOptions, type Outcome, Stage, type StageOptions } from './stage.js';

/** What happens while clients lock. */
export interface Play {
  readonly stage: Stage;
  /** Whether the time is up. */
  readonly over: () => boolean;
}

/** One fault test: what there is, what is done to it, and what is expected beyond what is expected of all. */
export interface Scenario {
  readonly name: string;
  readonly stage: StageOptions;
  readonly clients: number;
  readonly client?: ClientOptions;
  /** How long it lasts from the first acquisition on, in the short and in the long form. */
  readonly seconds: readonly [short: number, long: number];
  /** Before the clients connect. */
  readonly before?: (stage: Stage) => Promise<void>;
  /** Does harm until the time is over, and undoes it. */
  readonly faults?: (play: Play) => Promise<void>;
  /** Why it cannot be run on this machine. */
  readonly skippedBecause?: string;
  /** No lock can be had at first. */
  readonly startsLocked?: boolean;
  /** Two holders at a time are to be expected here, and why. */
  readonly overlapsBecause?: string;
  /** Acquisitions for each second. */
  readonly leastRate?: number;
  /** Throws what is wrong. */
  readonly check?: (outcome: Outcome) => void;
}

/** @param compiled - the library and the worker, as `compile` made them */
export async function play(compiled: string, scenario: Scenario, form: 'short' | 'long'): Promise<Outcome> {
  const stage = await Stage.set(compiled, scenario.stage);
  try {
    await scenario.before?.(stage);
    await stage.startClients(scenario.clients, scenario.client);
    stage.go();
    if (!scenario.startsLocked) await stage.acquired(1);
    const end = machineTime() + scenario.seconds[form === 'short' ? 0 : 1] * 1_000;
    await scenario.faults?.({ stage, over: () => machineTime() > end });
    await sleep(Math.max(0, end - machineTime()));
    return await stage.end();
  } finally {
    await stage.close();
  }
}

/** Does something again and again, with a pause after each time, until the time is over. */
export async function repeat(
  { over }: Play,
  pause: number,
  action: (turn: number) => Promise<unknown>,
): Promise<void> {
  for (let turn = 0; !over(); turn++) {
    await action(turn);
    await sleep(pause);
  }
}

/** So many of them, at random. */
export function some<T>(count: number, all: readonly T[]): T[] {
  return all
    .map((value) => ({ value, rank: Math.random() }))
    .toSorted((a, b) => a.rank - b.rank)
    .slice(0, count)
    .map(({ value }) => value);
}
