import type { NetworkDefaults } from './network-defaults.js';
import type { OwnNodes } from './own-nodes.js';
import type { SendableNode } from './sendable-nodes.js';

/** The settings of the stores that the thread opens. */
export interface ThreadTerms {
  readonly keyPrefix: string;
  readonly guarded: boolean;
  readonly mayForget: boolean;
  readonly several: boolean;
  readonly driftFactor: number;
  readonly nodeTimeout: number | undefined;
  /** Milliseconds of the restart guard; `undefined` for the largest ttl in use. */
  readonly guard: number | undefined;
}

/** The data with which the thread starts. */
export interface ThreadData {
  readonly nodes: readonly SendableNode[] | OwnNodes;
  readonly terms: ThreadTerms;
  /** The counter by which the other thread shows that it runs. */
  readonly beats: SharedArrayBuffer;
  readonly network: NetworkDefaults;
}
