import { channel } from 'node:diagnostics_channel';
import type { LockUnavailableError } from '../core/errors.js';

/** Event on the channel {@link FORCE_RELEASE_CHANNEL} after this process has released a lock by force, or has tried to. */
export interface ForceReleaseEvent {
  /** The released key, in a list. */
  readonly keys: readonly string[];
  /** The `name` of the `RedlockModule`; absent for the module without a name. */
  readonly instance?: string;
  /** The `id` of the only holder to release; `undefined` for a release of all holders. */
  readonly id?: string;
  /** Person or program that requested the release: the option `actor`. */
  readonly actor?: string;
  /** `true` if at least one node had a holder to remove. */
  readonly released: boolean;
  /** The reason why `forceRelease` rejected: fewer than a quorum of nodes answered. */
  readonly error?: LockUnavailableError;
}

/** The name of the channel of `node:diagnostics_channel` on which every {@link ForceReleaseEvent} is published. */
export const FORCE_RELEASE_CHANNEL = 'nestjs-redlock:force-release';

export const forceReleases = channel(FORCE_RELEASE_CHANNEL);
