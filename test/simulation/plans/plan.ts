import type { FaultEvent } from './faults.js';

/** The kinds of work, each with its weight. */
export type Mix = Partial<Record<Operation, number>>;

export type Operation =
  | 'acquire'
  | 'tryAcquire'
  | 'severalKeys'
  | 'shared'
  | 'permits'
  | 'tryPermits'
  | 'minHold'
  | 'maxHold'
  | 'aborted'
  | 'attempts'
  | 'withLock'
  | 'forceRelease'
  | 'declared'
  | 'list'
  | 'inspect';

/** A world: its nodes, its processes and their work, and the faults. It is plain data, so a failing plan can be kept. */
export interface Plan {
  /** The seed of all random numbers of the world. */
  readonly seed: string;
  readonly nodes: number;
  /**
   * The servers that the processes list as nodes, by their indexes, if they differ during a deployment: the first processes
   * use the first list, and those that take their places use the last. All processes list all servers by default.
   */
  readonly lists?: readonly (readonly number[])[];
  readonly processes: number;
  /** The number of callers in each process. */
  readonly workers: number;
  /** The longest pause of a caller between two calls, in milliseconds. */
  readonly pace: number;
  /** The shortest such pause; 1 by default. */
  readonly leastPace?: number;
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
  /** The number of keys of exclusive locks; 3 by default. Fewer keys bring more contention. */
  readonly keys?: number;
  /** The numbers of permits that callers ask for; 2, 2, 3 and 4 by default. */
  readonly permits?: readonly number[];
  /** The longest usual delay of a message in one direction, in milliseconds; 1.5 by default. */
  readonly latency?: number;
  /** The longest time for which most locks are held, in milliseconds; 200 by default. */
  readonly holds?: number;
  /** The part of the locks that is not renewed, and is mostly used until its end; 0.15 by default. */
  readonly lapsing?: number;
  readonly leader: boolean;
  /** The longest time for which a leader leads, in milliseconds; 10,000 by default. */
  readonly terms?: number;
  readonly ticks: boolean;
  /** `true` if processes hand locks to each other; `false` by default. */
  readonly handsOver?: boolean;
  /** `true` if a thread of each process renews its locks (`renew: 'thread'`); `false` by default. */
  readonly thread?: boolean;
  readonly events: readonly FaultEvent[];
}

/** The longest ttl that any lock of the plan can have. */
export function longestTtl({ ttls, longTtl }: Plan): number {
  return Math.max(10_000, longTtl, ...ttls);
}

/** The numbers of permits that callers ask for. */
export function permitsOf({ permits = [2, 2, 3, 4] }: Plan): readonly number[] {
  return permits;
}
