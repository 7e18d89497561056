import type { FaultEvent } from './faults.js';

/** The kinds of work, each with its weight. */
export type Mix = Partial<Record<Operation, number>>;

export type Operation =
  | 'acquire'
  | 'tryAcquire'
  | 'severalKeys'
  | 'shared'
  | 'permits'
  | 'minHold'
  | 'maxHold'
  | 'aborted'
  | 'attempts'
  | 'withLock'
  | 'forceRelease'
  | 'inspect';

/** A world: its nodes, its processes and their work, and the faults. It is plain data, so a failing plan can be kept. */
export interface Plan {
  /** The seed of all random numbers of the world. */
  readonly seed: string;
  readonly nodes: number;
  readonly processes: number;
  /** The number of callers in each process. */
  readonly workers: number;
  /** The longest pause of a caller between two calls, in milliseconds. */
  readonly pace: number;
  readonly ttls: readonly number[];
  /** The ttl of a lock that the first process holds as long as it can; 0 for no such lock. */
  readonly longTtl: number;
  readonly guard: boolean;
  /** `true` if the application passes its own clients in, which send unanswered commands again. */
  readonly passedIn: boolean;
  readonly nodeTimeout: number | undefined;
  readonly shutdownTimeout: number;
  /** The largest difference of a clock's rate from true time. */
  readonly drift: number;
  /** Milliseconds of work and faults; afterwards all heals. */
  readonly duration: number;
  readonly mix: Mix;
  readonly leader: boolean;
  readonly ticks: boolean;
  readonly events: readonly FaultEvent[];
}

/** The longest ttl that any lock of the plan can have. */
export function longestTtl({ ttls, longTtl }: Plan): number {
  return Math.max(10_000, longTtl, ...ttls);
}
