import { channel } from 'node:diagnostics_channel';

/**
 * Event on the channel {@link LEADER_CHANNEL} when this process starts to campaign, and when it starts or stops
 * leading.
 */
export interface LeaderEvent {
  /** The name of the leader, from `@Leader`. */
  readonly leader: string;
  /** The names of the class and of the method with `@Leader`. */
  readonly method: string;
  /** The `name` of the `RedlockModule`; absent for the module without a name. */
  readonly instance?: string;
  /**
   * `true` if this process leads from now on. `false` with a `fencingToken`: this process has stopped leading. `false`
   * without a `fencingToken`: this process has started to campaign.
   */
  readonly isLeader: boolean;
  /** `LeaderTerm.fencingToken` of the term that begins or has ended. */
  readonly fencingToken?: number;
  /**
   * The reason for the end of a term: `'lost'`, the lock was lost; `'resigned'`, the process resigned; `'returned'` or
   * `'threw'`, the method has ended; `'shutdown'`, the application shuts down.
   */
  readonly reason?: TermEnd;
  /** The error; only with `'lost'` and `'threw'`. */
  readonly error?: unknown;
}

/** The reason for the end of a term. */
export type TermEnd = 'lost' | 'resigned' | 'returned' | 'threw' | 'shutdown';

/** The name of the channel of `node:diagnostics_channel` on which every {@link LeaderEvent} is published. */
export const LEADER_CHANNEL = 'nestjs-redlock:leader';

export const leaderEvents = channel(LEADER_CHANNEL);
