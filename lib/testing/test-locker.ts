import { LockRuntime } from '../service/lock-runtime.js';
import type { LockOrigin } from '../telemetry/lock-origin.js';
import type { RunnableLock } from '../service/lock-scope.js';
import { NO_RETRY, type ResolvedLockOptions } from '../core/lock-options.js';

/** An acquired lock, with the requested keys and options. */
export interface Acquired {
  /** The requested keys. A lock that the call joined may have more keys. */
  readonly keys: readonly string[];
  readonly lock: RunnableLock;
  readonly options: ResolvedLockOptions;
  readonly origin: LockOrigin;
}

/** Settings and callbacks with which a test supervises the lock runtimes of its applications. */
export interface Supervision {
  /** `true` to wait for a lock that is not free. */
  readonly wait: boolean;
  readonly acquired: (acquired: Acquired) => void;
}

/** Makes a subclass of `LockRuntime` that a test supervises. */
export function supervised(supervision: Supervision): typeof LockRuntime {
  return class extends LockRuntime {
    override async acquire(
      ...[keys, options, origin, signal, tick]: Parameters<LockRuntime['acquire']>
    ): Promise<RunnableLock> {
      const retry = supervision.wait ? options.retry : NO_RETRY;
      const lock = await super.acquire(keys, { ...options, retry }, origin, signal, tick);
      supervision.acquired({ keys, lock, options, origin });
      return lock;
    }
  };
}
