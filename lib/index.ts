export { currentLock } from './service/lock-context.js';
export { outside } from './service/lock-scope.js';
export { InjectLockService } from './decorator/inject-lock-service.decorator.js';
export {
  LOCK_ACQUIRE_CHANNEL,
  LOCK_HOLD_CHANNEL,
  type LockAcquireEvent,
  type LockEvent,
  type LockHoldEvent,
  type LockSubject,
} from './telemetry/lock-telemetry.events.js';
export { LockExceptionFilter, type LockProblem } from './http/lock-exception.filter.js';
export { FORCE_RELEASE_CHANNEL, type ForceReleaseEvent } from './telemetry/force-release.js';
export { LOCK_SKIPPED_CHANNEL, type LockSkippedEvent } from './telemetry/lock-skipped.js';
export { LockInterceptor } from './decorator/lock.interceptor.js';
export {
  LOCK_RELEASE_CHANNEL,
  LOCK_STATE_CHANNEL,
  type LockReleaseEvent,
  type LockSlots,
  type LockState,
  type LockStateEvent,
  NODE_ERROR_CHANNEL,
  type NodeErrorEvent,
  THREAD_CHANNEL,
  type ThreadEvent,
} from './core/lock-events.js';
export { Leader, type LeaderOptions } from './decorator/leader/leader.decorator.js';
export { OnlyLeader, type OnlyLeaderOptions } from './decorator/leader/only-leader.decorator.js';
export type { CurrentLeader, LeaderTerm } from './service/leader/leader-term.js';
export type { Leadership } from './service/leader/leadership.js';
export { LEADER_CHANNEL, type LeaderEvent, type TermEnd } from './telemetry/leader-event.js';
export type { LockDeclaration } from './service/declarations.js';
export {
  type DeclaredAcquireOptions,
  type DeclaredOncePerTickOptions,
  LockService,
  type OncePerTickOptions,
  type TryAcquireOptions,
} from './service/lock.service.js';
export { RedlockModule } from './module/redlock.module.js';
export type { RedlockModuleExtras } from './module/redlock.module-definition.js';
export type { RedlockModuleOptions, RedlockNodeOption } from './setup/redlock.options.js';
export {
  LockHeldError,
  LockLostError,
  LockUnavailableError,
  type NodeVote,
  RedlockError,
  type RedlockErrorCode,
  type RetryLimit,
} from './core/errors.js';
export {
  type DeclaredKey,
  type DeclaredLock,
  type DeclaredLocks,
  defineLocks,
  type KeyedLock,
  type LockDefinition,
} from './core/declared-lock.js';
export type { LockKey } from './core/keys.js';
export type { LockOverride, LockOverrides } from './core/lock-override.js';
export type { LockPolicy } from './core/lock-policy.js';
export type { LockHandle } from './core/lock-handle.js';
export type { LockHolder, LockInfo, LockVote, NodeHolder } from './core/lock-info.js';
export type { LockMode } from './core/lock-mode.js';
export type { ForceReleaseOptions, ListOptions } from './redlock/inspect/lock-inspector.js';
export type {
  AcquireOptions,
  AttachOptions,
  LockKindOptions,
  LockOptions,
  RetryOptions,
} from './core/lock-options.js';
export type { NodeCheck, NodesStatus, NodeStatus } from './core/node-status.js';
export { WithLock, type WithDeclaredLockOptions } from './decorator/with-lock.decorator.js';
export type { WithLockOptions } from './decorator/with-lock.options.js';
