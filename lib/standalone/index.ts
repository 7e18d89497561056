export { createLocks, Locks, type LocksLogger, type LocksOptions } from './locks.js';
export { currentLock } from '../service/lock-context.js';
export { outside } from '../service/lock-scope.js';
export {
  type DeclaredAcquireOptions,
  type DeclaredOncePerTickOptions,
  LockService,
  type OncePerTickOptions,
  type TryAcquireOptions,
} from '../service/lock.service.js';
export type { LockDeclaration } from '../service/declarations.js';
export type { RedlockModuleOptions, RedlockNodeOption } from '../setup/redlock.options.js';
export {
  LockHeldError,
  LockLostError,
  LockUnavailableError,
  type NodeVote,
  RedlockError,
  type RedlockErrorCode,
  type RetryLimit,
} from '../core/errors.js';
export {
  type DeclaredKey,
  type DeclaredLock,
  type DeclaredLocks,
  defineLocks,
  type KeyedLock,
  type LockDefinition,
} from '../core/declared-lock.js';
export type { LockKey } from '../core/keys.js';
export type { LockOverride, LockOverrides } from '../core/lock-override.js';
export type { LockPolicy } from '../core/lock-policy.js';
export type { LockHandle } from '../core/lock-handle.js';
export type { LockHolder, LockInfo, LockVote, NodeHolder } from '../core/lock-info.js';
export type { LockMode } from '../core/lock-mode.js';
export type { ForceReleaseOptions, ListOptions } from '../redlock/inspect/lock-inspector.js';
export type {
  AcquireOptions,
  AttachOptions,
  LockKindOptions,
  LockOptions,
  RetryOptions,
} from '../core/lock-options.js';
export type { LockEvent } from '../telemetry/lock-telemetry.events.js';
export type { NodeCheck, NodesStatus, NodeStatus } from '../core/node-status.js';
