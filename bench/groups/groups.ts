import { failures } from './failures.js';
import type { Group } from './group.js';
import { growth } from './growth.js';
import { handOver } from './hand-over.js';
import { held } from './held.js';
import { holders } from './holders.js';
import { kinds } from './kinds.js';
import { latency } from './latency.js';
import { leftovers } from './leftovers.js';
import { network } from './network.js';
import { objects } from './objects.js';
import { overhead } from './overhead.js';
import { roundTrips } from './permits.js';
import { readers } from './readers.js';
import { serverTime } from './server-time.js';
import { simulation } from './simulation.js';
import { stores } from './stores.js';
import { thread } from './thread.js';
import { throughput } from './throughput.js';
import { timeouts } from './timeouts.js';
import { weight } from './weight.js';

/** All groups in the order in which they run. */
export const GROUPS: readonly Group[] = [
  latency,
  network,
  throughput,
  objects,
  serverTime,
  leftovers,
  handOver,
  held,
  thread,
  kinds,
  roundTrips,
  timeouts,
  holders,
  readers,
  stores,
  failures,
  overhead,
  growth,
  simulation,
  weight,
];
