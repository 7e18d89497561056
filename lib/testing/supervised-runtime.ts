import { LockRuntime } from '../service/lock-runtime.js';
import type { LockCall } from '../service/lock-call.js';
import type { RunnableLock } from '../service/lock-scope.js';
import { NO_RETRY } from '../core/lock-options.js';

/** An acquired lock, with the call for it. A lock that the call joined may have more keys than the call requested. */
export interface Acquired {
  readonly call: LockCall;
  readonly lock: RunnableLock;
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
    override async acquire(asked: LockCall): Promise<RunnableLock> {
      const { options } = asked;
      const call = { ...asked, options: { ...options, retry: supervision.wait ? options.retry : NO_RETRY } };
      const lock = await super.acquire(call);
      supervision.acquired({ call: asked, lock });
      return lock;
    }
  };
}
