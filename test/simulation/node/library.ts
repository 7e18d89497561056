// The entry of the bundle that `load.ts` makes: the library, and the code of the simulator that uses its clocks.
export { defineLocks } from '../../../lib/core/declared-lock.js';
export { tokenAt } from '../../../lib/core/fencing-token.js';
export { Lease } from '../../../lib/core/lease.js';
export { makeRuntime } from '../../../lib/setup/open-runtime.js';
export { Leaders } from '../../../lib/service/leader/leaders.js';
export { LockService } from '../../../lib/service/lock.service.js';
export { RestartGuard } from '../../../lib/redlock/restart-guard.js';
export { Beats } from '../../../lib/redlock/thread/liveness.js';
export { Renewals } from '../../../lib/redlock/thread/renewals.js';
export { ThreadHost } from '../../../lib/redlock/thread/thread-host.js';
export { RedisStore } from '../../../lib/stores/redis/redis-store.js';
export { SimulatedNode } from './simulated-node.js';
