import { setTimeout as sleep } from 'node:timers/promises';
import type { AcquireRequest, Store } from '../../lib/core/ports.js';
import { openStores } from '../../lib/setup/open-stores.js';
import { makeRuntime } from '../../lib/setup/open-runtime.js';
import { Leaders } from '../../lib/service/leader/leaders.js';
import { LockService } from '../../lib/service/lock.service.js';

/** Result of requests for permits at random times. */
export interface Offered {
  readonly asked: number;
  readonly granted: number;
  /** Number of grants that needed only one round trip. */
  readonly first: number;
  /** Number of grants for which some nodes were asked again, to grant the same slot as the other nodes. */
  readonly mended: number;
  /** Number of grants for which some nodes were asked again, to store the same token as the other nodes. */
  readonly raised: number;
  /** Sum of the milliseconds that permits were held, until a quorum had confirmed the release. */
  readonly held: number;
  /** Number of requests that were repeated because the nodes did not agree on one slot. */
  readonly anew: number;
}

export interface Offer {
  readonly urls: readonly string[];
  readonly key: string;
  readonly permits: number;
  /**
   * Average milliseconds that a permit is held (`hold`), and between two requests (`every`). Both times are
   * exponentially distributed.
   */
  readonly hold: number;
  readonly every: number;
  readonly within: number;
}

const TTL = 10_000;

/** Asks for permits at random times, and counts which of them needed more than one request to a node. */
export async function offer({ urls, key, permits, hold, every, within }: Offer): Promise<Offered> {
  const mended = new Set<string>();
  const raised = new Set<string>();
  const leases = new Set<string>();
  const runtime = makeRuntime(
    { nodes: urls },
    {
      nodesOf: (options, context, nodeLog) =>
        openStores(options, context, nodeLog).map((store) => counted(store, leases, mended, raised)),
    },
  );
  const locks = new LockService(runtime, new Leaders(runtime, undefined, runtime.log));
  await runtime.open();
  const ended: Promise<string | undefined>[] = [];
  let held = 0;
  const one = async (): Promise<string | undefined> => {
    const lock = await locks.tryAcquire(key, { permits, ttl: TTL, renew: false });
    if (!lock) return undefined;
    const since = performance.now();
    await sleep(exponential(hold));
    await lock.release();
    held += performance.now() - since;
    return lock.id;
  };
  const begun = performance.now();
  for (let next = begun; next - begun < within; next += exponential(every)) {
    await sleep(Math.max(0, next - performance.now()));
    ended.push(one());
  }
  const granted = (await Promise.all(ended)).filter((id) => id !== undefined);
  await runtime.close();
  return {
    asked: ended.length,
    granted: granted.length,
    first: granted.filter((id) => !mended.has(id) && !raised.has(id)).length,
    mended: granted.filter((id) => mended.has(id)).length,
    raised: granted.filter((id) => raised.has(id)).length,
    held,
    anew: leases.size - ended.length,
  };
}

/** Changes a store so that it notes the leases for which it is asked again. */
function counted(store: Store, leases: Set<string>, mended: Set<string>, raised: Set<string>): Store {
  const { acquire, raise } = store;
  store.acquire = (requests, ordered, tell) => {
    for (const request of requests) {
      leases.add(request.lease.id);
      if (isMended(request)) mended.add(request.lease.id);
    }
    acquire.call(store, requests, ordered, tell);
  };
  if (!raise) return store;
  store.raise = (lease, token) => {
    raised.add(lease.id);
    return raise.call(store, lease, token);
  };
  return store;
}

/**
 * True if the request asks the node for the slot that the other nodes granted. After a quorum has agreed on a slot,
 * such a request does not count: the caller of the lock does not wait for its answer.
 */
function isMended({ wish, lease }: AcquireRequest): boolean {
  return wish?.exactly === true && lease.slots === undefined;
}

function exponential(mean: number): number {
  return -Math.log(1 - Math.random()) * mean;
}
