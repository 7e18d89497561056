import type { StoreContext } from '../../stores/redis/store-context.js';
import type { NetworkDefaults } from './network-defaults.js';
import type { OwnNodes } from './own-nodes.js';
import type { SendableNode } from './sendable-nodes.js';

/** The settings of the stores that the thread opens. */
export interface ThreadTerms extends Required<
  Pick<StoreContext, 'keyPrefix' | 'guarded' | 'mayForget' | 'several'>
> {
  /** The allowance for clock rates, as a share of the ttl. */
  readonly driftFactor: number;
  /** Milliseconds that a node may take to answer; `undefined` for the default. */
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
