import { channel } from 'node:diagnostics_channel';

/** Event on the channel {@link LEADER_CHANNEL} when this process starts or stops to lead. */
export interface LeaderEvent {
  /** The name that `@Leader` gives. */
  readonly leader: string;
  /** The class and the method that has `@Leader`. */
  readonly method: string;
  /** The `name` of the `RedlockModule`; not for the one without a name. */
  readonly instance?: string;
  /** `true` if this process leads from now on. `false` without a token: it has started to campaign. */
  readonly isLeader: boolean;
  /** `LeaderTerm.fencingToken` of the term that begins or has ended. */
  readonly fencingToken?: number;
  /**
   * Why a term has ended: `'lost'` its lock; the process `'resigned'`; its method `'returned'` or `'threw'`; the
   * application has begun its `'shutdown'`.
   */
  readonly reason?: TermEnd;
  /** With `'lost'` and `'threw'`. */
  readonly error?: unknown;
}

/** End of a term. */
export type TermEnd = 'lost' | 'resigned' | 'returned' | 'threw' | 'shutdown';

/** The name of the channel of `node:diagnostics_channel` on which every {@link LeaderEvent} is published. */
export const LEADER_CHANNEL = 'nestjs-redlock:leader';

export const leaderEvents = channel(LEADER_CHANNEL);
