export type {
  AcquireReply,
  AcquireRequest,
  ExchangeRequest,
  HeldKey,
  Holder,
  KeyHolder,
  KeyState,
  KeyWaiter,
  LeaseExchange,
  LockDirectory,
  LockStore,
  QueueDirectory,
  QueuePosition,
  QuorumStore,
  ReleaseRequest,
  SlotWish,
  StarvationGuard,
  Store,
  StoreHealth,
  Subscription,
  Tell,
  WaitQueue,
} from '../core/ports.js';
export type { StoreFactory, StoreTerms } from '../core/store-factory.js';
export type { Lease } from '../core/lease.js';
export type { LockKind, LockMode } from '../core/lock-mode.js';
export type { NodeCheck } from '../core/node-status.js';
export type { Tick, TickMark } from '../core/tick.js';
export type { WaiterId } from '../core/waiter-id.js';
export { tokenAt } from '../core/fencing-token.js';
export { UnfitStoreError } from '../core/errors.js';
export { tellEach } from '../core/tell-each.js';
export { storeContract, type StoreUnderTest } from '../stores/contract/store-contract.js';
export type { ContractRunner } from '../stores/contract/store-asker.js';
