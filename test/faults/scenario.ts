import { setTimeout as sleep } from 'node:timers/promises';
import { until } from '../support/until.js';
import { type FaultEvent, machineTime } from './events.js';
import { type ClientOptions, type Outcome, Stage, type StageOptions } from './stage.js';

/** Extra time, in milliseconds, that a scenario gets if the situation that it tests has not occurred yet. */
const PATIENCE_MS = 120_000;

/** A running scenario. */
export interface Play {
  readonly stage: Stage;
  /** Resolves to true when the time is up and the situation that the scenario tests has occurred. */
  readonly over: () => Promise<boolean>;
}

/**
 * One fault test: its servers and clients, its faults, and what it expects in addition to the expectations of every
 * fault test.
 */
export interface Scenario {
  readonly name: string;
  readonly stage: StageOptions;
  readonly clients: number;
  readonly client?: ClientOptions;
  /** Duration from the first acquisition on, in the short and in the long form. */
  readonly seconds: readonly [short: number, long: number];
  /**
   * Leaves the scenario out of the short form, because the simulator makes such worlds (docs/fault-tests.md), or because
   * it takes long.
   */
  readonly onlyLong?: boolean;
  /** `npm test` runs the short form of this scenario, too; it runs one scenario for each of the most important rules. */
  readonly essential?: boolean;
  /** Runs before the clients connect. */
  readonly before?: (stage: Stage) => Promise<void>;
  /** Causes faults until the time is over, and then ends them. */
  readonly faults?: (play: Play) => Promise<void>;
  /** The reason why this machine cannot run the scenario. */
  readonly skippedBecause?: string;
  /** No client can acquire a lock at first. */
  readonly startsLocked?: boolean;
  /** The reason why two holders may overlap here. */
  readonly overlapsBecause?: string;
  /**
   * Returns true if the situation that the scenario tests has occurred. The scenario runs until then: a busy machine
   * may need more than `seconds`.
   *
   * @param until - the log of each client is complete up to this time
   */
  readonly enough?: (events: readonly FaultEvent[], until: number) => boolean;
  /** Required acquisitions per second. */
  readonly leastRate?: number;
  /** Throws an error if an expectation of this scenario is not met. */
  readonly check?: (outcome: Outcome, form: Form) => void;
}

/** The short form runs beside other work of the machine. The long form has the machine for itself. */
export type Form = 'short' | 'long';

/** The programs that a scenario runs as processes. */
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
      const now = machineTime();
      if (now < end) return false;
      return (scenario.enough?.(await stage.events(), now) ?? true) || now > end + PATIENCE_MS;
    };
    await scenario.faults?.({ stage, over });
    await toTheEnd({ stage, over });
    return await stage.end();
  } finally {
    await stage.close();
  }
}

/** Repeats an action, with a pause after each time, until the time is over. */
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

/** Waits until the time is over. */
export async function toTheEnd({ over }: Play): Promise<void> {
  await until(over, Infinity);
}

/** Counts the events of this kind. */
export function countOf(events: readonly FaultEvent[], event: FaultEvent['event']): number {
  return events.filter((each) => each.event === event).length;
}

/** Counts the refusals with this code, or with this text in the message. */
export function refusals(events: readonly FaultEvent[], saying: string): number {
  return events.filter(
    (each) => each.event === 'refuse' && (each.code === saying || each.message.includes(saying)),
  ).length;
}

/** Counts the writes that the register refused because their holders came too late. */
export function refusedWrites(events: readonly FaultEvent[]): number {
  return events.filter((each) => each.event === 'write' && !each.accepted).length;
}

/** Returns `count` of the values, chosen at random. */
export function some<T>(count: number, all: readonly T[]): T[] {
  return all
    .map((value) => ({ value, rank: Math.random() }))
    .toSorted((a, b) => a.rank - b.rank)
    .slice(0, count)
    .map(({ value }) => value);
}
