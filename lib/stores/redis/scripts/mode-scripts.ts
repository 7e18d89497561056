import type { Lease } from '../../../core/lease.js';
import type { LockMode } from '../../../core/lock-mode.js';
import type { AcquireReply, AcquireRequest, ReleaseRequest, SlotWish } from '../../../core/ports.js';
import { ACQUIRE, packAcquire } from './acquire.js';
import { readAcquireReply } from './acquire-answer.js';
import type { AcquireCommand } from './acquire-command.js';
import { ACQUIRE_PERMITS, packAcquirePermits } from './acquire-permits.js';
import { ACQUIRE_SHARED, packAcquireShared } from './acquire-shared.js';
import { EXTEND, packExtend } from './extend.js';
import { EXTEND_PERMITS, packExtendPermits } from './extend-permits.js';
import { EXTEND_SHARED, packExtendShared } from './extend-shared.js';
import { readAcquirePermitsReply } from './permit-answer.js';
import { packRaise, RAISE } from './raise.js';
import { packRaisePermits, RAISE_PERMITS } from './raise-permits.js';
import { packRaiseShared, RAISE_SHARED } from './raise-shared.js';
import { packRelease, RELEASE } from './release.js';
import { packReleasePermits, RELEASE_PERMITS } from './release-permits.js';
import { packReleaseShared, RELEASE_SHARED } from './release-shared.js';
import type { Packed, Script } from './script.js';

/** The scripts for the leases of one mode. Their answers have the same form in each mode. */
export interface ModeScripts {
  /** Stores leases. Returns an answer for each lease, and the time on the server's clock in microseconds. */
  readonly acquire: {
    readonly script: Script;
    readonly pack: (requests: readonly AcquireRequest[], command: AcquireCommand) => Packed;
    readonly read: (answer: unknown, wish?: SlotWish) => AcquireReply | Error;
  };
  /** Extends leases. Returns a string with 1 for each held lease, and 0 for each other. */
  readonly extend: {
    readonly script: Script;
    readonly pack: (leases: readonly Lease[], ttl: number, keyPrefix: string, base: string) => Packed;
  };
  /** Releases leases. Returns for each lease an error, or the number of waiters that got a message. */
  readonly release: {
    readonly script: Script;
    readonly pack: (requests: readonly ReleaseRequest[], keyPrefix: string, base: string) => Packed;
  };
  /**
   * Raises the tokens of a lease to the token on which the nodes agree. Returns 1 when the lease is held and has the
   * token now, else 0.
   */
  readonly raise: {
    readonly script: Script;
    readonly pack: (lease: Lease, token: number, keyPrefix: string, marker: string | undefined) => Packed;
  };
}

const SCRIPTS: Readonly<Record<LockMode, ModeScripts>> = {
  exclusive: {
    acquire: { script: ACQUIRE, pack: packAcquire, read: readAcquireReply },
    extend: { script: EXTEND, pack: packExtend },
    release: { script: RELEASE, pack: packRelease },
    raise: { script: RAISE, pack: packRaise },
  },
  shared: {
    acquire: { script: ACQUIRE_SHARED, pack: packAcquireShared, read: readAcquireReply },
    extend: { script: EXTEND_SHARED, pack: packExtendShared },
    release: { script: RELEASE_SHARED, pack: packReleaseShared },
    raise: { script: RAISE_SHARED, pack: packRaiseShared },
  },
  permits: {
    acquire: { script: ACQUIRE_PERMITS, pack: packAcquirePermits, read: readAcquirePermitsReply },
    extend: { script: EXTEND_PERMITS, pack: packExtendPermits },
    release: { script: RELEASE_PERMITS, pack: packReleasePermits },
    raise: { script: RAISE_PERMITS, pack: packRaisePermits },
  },
};

/** The modes with scripts. */
export const MODES = Object.keys(SCRIPTS) as readonly LockMode[];

/** The scripts for the mode of the lease. */
export function scriptsFor({ kind: { mode } }: Lease): ModeScripts {
  return SCRIPTS[mode];
}
