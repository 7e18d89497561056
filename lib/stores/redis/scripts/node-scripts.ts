import type { AcquireRequest } from '../../../core/ports.js';
import { isPlain } from './acquire.js';
import { acquireAnswers, isTooLate, showsWaiters, tooYoungFor, youngBecause } from './acquire-answer.js';
import { EXCHANGE, isExchange, packExchange, readExchangeReply } from './exchange.js';
import { isExtended } from './extend-command.js';
import { BIRTH, packBirth, readBirth } from './birth.js';
import { endedOf, FORCE_RELEASE, packForceRelease } from './force-release.js';
import { HOLD_BACK, packHoldBack } from './hold-back.js';
import { LEAVE, packLeave } from './leave.js';
import { LET_PASS, packLetPass } from './let-pass.js';
import { MODES, type ModeScripts, scriptsFor } from './mode-scripts.js';
import { PROBE } from './probe.js';
import { adviceOnKinds, PROBE_KINDS } from './probe-kinds.js';
import { BEGINNING, packRead, READ, readPage } from './read.js';
import { leftWaiters, packReleaseWithoutQueue, RELEASE } from './release.js';
import { releaseAnswer } from './release-command.js';
import { packWaiting, WAITING, waitersOf } from './waiting.js';
import { packWakeWaiters, WAKE_WAITERS } from './wake-waiters.js';

/**
 * All scripts that a Redis node runs, with the functions that pack their arguments and read their answers. The store
 * uses no other file of this folder, so that the simulator can replace Lua by code that runs without a server.
 */
export const nodeScripts = {
  modes: MODES,
  /** The scripts for the mode of a lease. */
  of: scriptsFor,
  /** The script for an acquisition, or for the exchange of a lease, which is sent in the same way. */
  asked,
  acquire: { answers: acquireAnswers, isPlain, isTooLate, showsWaiters, tooYoungFor, youngBecause },
  extend: { isExtended },
  release: {
    answer: releaseAnswer,
    /** Only on a Cluster, for an exclusive lease whose hash slot moves. */
    withoutQueue: { script: RELEASE, pack: packReleaseWithoutQueue, leftWaiters },
  },
  wakeWaiters: { script: WAKE_WAITERS, pack: packWakeWaiters },
  forceRelease: { script: FORCE_RELEASE, pack: packForceRelease, endedOf },
  holdBack: { script: HOLD_BACK, pack: packHoldBack },
  letPass: { script: LET_PASS, pack: packLetPass },
  leave: { script: LEAVE, pack: packLeave },
  read: { script: READ, pack: packRead, page: readPage, beginning: BEGINNING },
  waiting: { script: WAITING, pack: packWaiting, waitersOf },
  birth: { script: BIRTH, pack: packBirth, read: readBirth },
  probe: { script: PROBE },
  probeKinds: { script: PROBE_KINDS, advice: adviceOnKinds },
};

const exchange: ModeScripts['acquire'] = {
  script: EXCHANGE,
  pack: packExchange,
  read: readExchangeReply,
};

function asked(request: AcquireRequest): ModeScripts['acquire'] {
  return isExchange(request) ? exchange : scriptsFor(request.lease).acquire;
}

export type NodeScripts = typeof nodeScripts;
