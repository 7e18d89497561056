export { currentLock } from './lock-context.js';
export { InjectLockService } from './inject-lock-service.decorator.js';
export {
  LOCK_ACQUIRE_CHANNEL,
  LOCK_HOLD_CHANNEL,
  type LockAcquireEvent,
  type LockEvent,
  type LockHoldEvent,
  type LockSubject,
} from './lock-telemetry.events.js';
export { LockExceptionFilter, type LockProblem } from './lock-exception.filter.js';
export { LOCK_SKIPPED_CHANNEL, type LockSkippedEvent } from './lock-skipped.js';
export { LockInterceptor } from './lock.interceptor.js';
export {
  LOCK_RELEASE_CHANNEL,
  LOCK_STATE_CHANNEL,
  type LockReleaseEvent,
  type LockState,
  type LockStateEvent,
  NODE_ERROR_CHANNEL,
  type NodeErrorEvent,
} from './redlock/lock-events.js';
export { LockService, type TryAcquireOptions } from './lock.service.js';
export { RedlockModule } from './redlock.module.js';
export type { RedlockModuleExtras } from './redlock.module-definition.js';
export type { RedlockModuleOptions, RedlockNodeOption } from './redlock.options.js';
export {
  LockHeldError,
  LockLostError,
  LockUnavailableError,
  type NodeVote,
  RedlockError,
  type RedlockErrorCode,
  type RetryLimit,
} from './redlock/errors.js';
export type { LockKey } from './redlock/keys.js';
export type { LockHandle } from './redlock/lock-handle.js';
export type { LockInfo, LockVote } from './redlock/lock-info.js';
export type { ListOptions } from './redlock/inspection.js';
export type { AcquireOptions, LockOptions, RetryOptions } from './redlock/lock-options.js';
export type { NodeCheck, NodesStatus, NodeStatus } from './redlock/node-status.js';
export { WithLock } from './with-lock.decorator.js';
export type { WithLockOptions } from './with-lock.options.js';
