import { TTL } from './blocked-holder.js';
import { testInDatabases } from './blocked-in-databases.js';

// Shorter than in blocked.databases.long.ts: four servers, and the other tests, share the machine with the threads.
testInDatabases(3, TTL);
