export { type ExpectedLock, expectLocked } from './expect-locked.js';
export type { LockRecord } from './lock-record.js';
export { RedlockTestingModule, type RedlockTestingOptions } from './redlock-testing.module.js';
export {
  type EndOptions,
  type FaultOptions,
  type ForeignLock,
  type HoldOptions,
  TestLocks,
  type TestLocksOptions,
} from './test-locks.js';
