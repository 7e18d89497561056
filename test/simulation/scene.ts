import type { LockHandle } from '../../lib/core/lock-handle.js';
import type { Disturbances } from './judge/disturbances.js';
import type { Judge } from './judge/judge.js';
import type { Client } from './network/client.js';
import type { Link } from './network/link.js';
import type { Library } from './node/load.js';
import type { Server } from './node/server.js';
import type { Moments } from './plans/moments.js';
import type { Plan } from './plans/plan.js';
import type { SimulatedProcess } from './world/process.js';
import type { World } from './world/world.js';

/** The parts of a simulation that its other parts use. */
export interface Scene {
  readonly plan: Plan;
  readonly library: Library;
  readonly world: World;
  readonly servers: readonly Server[];
  readonly judge: Judge;
  readonly disturbances: Disturbances;
  readonly moments: Moments;
  /** The present process in each place. */
  readonly apps: readonly Application[];
  /** Also the processes that have ended. */
  readonly everyApp: readonly Application[];
  readonly longestTtl: number;
  /** The time of the last crash of a process, or loss of data: from then on a lock may last for its ttl. */
  lastEnd: number;
  /** Starts a process, after `life` earlier ones in its place. */
  start(index: number, life: number): void;
  /** The links of one process or all, to one node or all. */
  readonly links: (process: number | undefined, node: number | undefined) => readonly Link[];
}

/** A process of the application, from its start to its end. */
export interface Application {
  readonly scene: Scene;
  readonly name: string;
  readonly index: number;
  readonly life: number;
  readonly process: SimulatedProcess;
  readonly links: readonly Link[];
  /** The thread that renews its locks, if the plan has one. */
  readonly thread: { readonly process: SimulatedProcess; readonly links: readonly Link[] } | undefined;
  readonly clients: readonly Client[];
  readonly locks: InstanceType<Library['LockService']>;
  readonly runtime: ReturnType<Library['makeRuntime']>;
  readonly isClosing: boolean;
  readonly closedAt: number | undefined;
  /** `true` from the start of the application until it closes, or the time for work is over. */
  readonly isWorking: boolean;
  close(): void;
  kill(): void;
  /** Resolves when the lock is lost, or after `most` milliseconds. */
  untilLost(lock: Pick<LockHandle, 'signal'>, most: number): Promise<void>;
}
