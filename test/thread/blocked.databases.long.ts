import { testInDatabases } from './blocked-in-databases.js';

// The thread renews a lock after a third of this ttl, so a renewal may be some seconds late on a busy machine.
testInDatabases(5, 10_000);
