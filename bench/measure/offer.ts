import { setTimeout as sleep } from 'node:timers/promises';
import type { AcquireRequest, Store } from '../../lib/core/ports.js';
import { openStores } from '../../lib/module/open-stores.js';
import { makeRuntime } from '../../lib/module/open-runtime.js';
import { Leaders } from '../../lib/service/leader/leaders.js';
import { LockService } from '../../lib/service/lock.service.js';

/** Outcome of requests for permits. */
export interface Offered {
  readonly asked: number;
  readonly granted: number;
  /** Number of grants that needed one round trip. */
  readonly first: number;
  /** Number of grants for which some nodes were asked again, for the slot of the other nodes. */
  readonly mended: number;
  /** Number of grants for which some nodes were asked again, for the token of the other nodes. */
  readonly raised: number;
  /** Milliseconds that all which were granted were held, until a quorum had confirmed the release. */
  readonly held: number;
  /** Number of repeated requests, when the nodes did not agree on one slot. */
  readonly anew: number;
}

export interface Offer {
  readonly urls: readonly string[];
  readonly key: string;
  readonly permits: number;
  /** Milliseconds on average, exponential, as is the time until the next one asks. */
  readonly hold: number;
  readonly every: number;
  readonly within: number;
}

const TTL = 10_000;

/** Asks for permits at random times, and counts the round trips of each, by what the nodes are asked. */
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
  const locks = new LockService(runtime, new Leaders(runtime, undefined));
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

/** The store, which notes the leases that it is asked for again. */
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

/** Nodes that gave another slot are asked again also when a quorum has given one: then nobody waits for it. */
function isMended({ wish, lease }: AcquireRequest): boolean {
  return wish?.exactly === true && lease.slots === undefined;
}

function exponential(mean: number): number {
  return -Math.log(1 - Math.random()) * mean;
}
