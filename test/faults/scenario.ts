import { setTimeout as sleep } from 'node:timers/promises';
import { until } from '../support/until.js';
import { type FaultEvent, machineTime } from './events.js';
import { type ClientOptions, type Outcome, Stage, type StageOptions } from './stage.js';

/** Extra time, in milliseconds, that a scenario gets if its subject has not occurred yet. */
const PATIENCE_MS = 60_000;

/** What happens while clients lock. */
export interface Play {
  readonly stage: Stage;
  /** Whether the time is up and there was enough of what the scenario is about. */
  readonly over: () => Promise<boolean>;
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
  /** Whether the subject of the scenario has occurred. It runs until then: a busy machine may need more than `seconds`. */
  readonly enough?: (events: readonly FaultEvent[]) => boolean;
  /** Acquisitions for each second. */
  readonly leastRate?: number;
  /** Throws what is wrong. */
  readonly check?: (outcome: Outcome, form: Form) => void;
}

/** The short form runs on machines that do other things at the same time, the long one on a machine of its own. */
export type Form = 'short' | 'long';

/** The processes of a scenario. */
export const PROGRAMS = ['test/faults/worker.ts', 'test/faults/register.ts'];

/** @param programs - the folder that `bundle` made of `PROGRAMS` */
export async function play(programs: string, scenario: Scenario, form: Form): Promise<Outcome> {
  const stage = await Stage.set(programs, scenario.stage);
  try {
    await scenario.before?.(stage);
    await stage.startClients(scenario.clients, scenario.client);
    stage.go();
    if (!scenario.startsLocked) await stage.acquired(1);
    const end = machineTime() + scenario.seconds[form === 'short' ? 0 : 1] * 1_000;
    const over = async (): Promise<boolean> => {
      if (machineTime() < end) return false;
      return (scenario.enough?.(await stage.events()) ?? true) || machineTime() > end + PATIENCE_MS;
    };
    await scenario.faults?.({ stage, over });
    await toTheEnd({ stage, over });
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
  for (let turn = 0; !(await over()); turn++) {
    await action(turn);
    await sleep(pause);
  }
}

/** Leaves everything as it is until the time is over. */
export async function toTheEnd({ over }: Play): Promise<void> {
  await until(over, Infinity);
}

/** How many such events there are. */
export function countOf(events: readonly FaultEvent[], event: FaultEvent['event']): number {
  return events.filter((each) => each.event === event).length;
}

/** How many acquisitions were refused with this code, or with a message that says this. */
export function refusals(events: readonly FaultEvent[], saying: string): number {
  return events.filter(
    (each) => each.event === 'refuse' && (each.code === saying || each.message.includes(saying)),
  ).length;
}

/** How many writes of holders that came too late the register has refused. */
export function refusedWrites(events: readonly FaultEvent[]): number {
  return events.filter((each) => each.event === 'write' && !each.accepted).length;
}

/** So many of them, at random. */
export function some<T>(count: number, all: readonly T[]): T[] {
  return all
    .map((value) => ({ value, rank: Math.random() }))
    .toSorted((a, b) => a.rank - b.rank)
    .slice(0, count)
    .map(({ value }) => value);
}
