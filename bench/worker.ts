import { setTimeout as sleep } from 'node:timers/promises';
import { contender } from './contenders/contenders.js';
import type { Release, Session } from './contenders/contender.js';
import { bytesMade } from './measure/allocations.js';
import { median } from './measure/statistics.js';
import type { How, Request, Work } from './work.js';

// A worker process measures one library. So a group of benchmarks (bench/groups) can measure a library in a new process
// or in several processes, and can end a process whose calls hang.

const TTL = 10_000;
const WARM_UP = 4_000;
const SIDE_BY_SIDE = 64;

let session: Session | undefined;
const held: Release[] = [];

const work: Work = {
  async open({ name, urls }) {
    const begun = performance.now();
    session = await contender(name).open(urls);
    return performance.now() - begun;
  },

  async warmUp({ how, within }) {
    const begun = performance.now();
    for (let call = 0; call < WARM_UP && performance.now() - begun < within; call += 2 * SIDE_BY_SIDE) {
      await inLanes(1, SIDE_BY_SIDE, () => lock(how, 'warm-up'));
      await inLanes(SIDE_BY_SIDE, SIDE_BY_SIDE, (lane) => lock(how, `warm-up:${lane}`));
    }
    return undefined;
  },

  async calls({ how, count }) {
    const acquire: number[] = [];
    const release: number[] = [];
    for (let index = 0; index < count; index++) {
      const begun = performance.now();
      let acquired = NaN;
      await lock(how, `calls:${process.pid}:${index % 1_000}`, () => {
        acquired = performance.now();
      });
      const ended = performance.now();
      acquire.push((how === 'withLock' ? ended : acquired) - begun);
      release.push(how === 'withLock' ? 0 : ended - acquired);
    }
    return { acquire, release };
  },

  async lanes({ how, inFlight, count }) {
    const before = process.cpuUsage();
    const begun = performance.now();
    await inLanes(inFlight, count, (lane) => lock(how, `lanes:${process.pid}:${lane}`));
    const took = performance.now() - begun;
    const { user, system } = process.cpuUsage(before);
    return { took, cpu: (user + system) / 1_000 };
  },

  async objects({ how, inFlight, count }) {
    const made = await bytesMade(() =>
      inLanes(inFlight, count, (lane) => lock(how, `lanes:${process.pid}:${lane}`)),
    );
    return made / count;
  },

  async take({ keys, inFlight }) {
    await inBatches(keys, inFlight, async (key) => held.push(await opened().acquire(key, TTL)));
    return undefined;
  },

  async visit({ start, inFlight, count }) {
    await inLanes(inFlight, count, (_, turn) => lock('acquire', `${start}${turn}`));
    return undefined;
  },

  async cycles({ count, within }) {
    const begun = performance.now();
    const taken: number[] = [];
    while (taken.length < count && performance.now() - begun < within) {
      const start = performance.now();
      const release = await opened().acquire(`cycles:${process.pid}:${taken.length}`, 10_000);
      await release();
      taken.push(performance.now() - start);
    }
    return { p50: median(taken), slowest: Math.max(...taken) };
  },

  async queue({ key, waiters, each, hold, within }) {
    const begun = performance.now();
    const counts: number[] = Array.from({ length: waiters }, () => 0);
    const waits: number[] = [];
    const wait = async (waiter: number): Promise<void> => {
      for (let turn = 0; turn < each && performance.now() - begun < within; turn++) {
        const asked = performance.now();
        const release = await opened().wait(key, 10_000);
        waits.push(performance.now() - asked);
        await sleep(hold);
        await release();
        counts[waiter] = (counts[waiter] ?? 0) + 1;
      }
    };
    const all = Promise.all(counts.map((_, waiter) => wait(waiter)));
    const served = await Promise.race([all.then(() => true), sleep(within, false)]);
    return { took: served ? performance.now() - begun : Infinity, counts, waits };
  },

  async hold({ keys, ttl, watched }) {
    const before = usedHeap();
    let next = 0;
    const lane = async (): Promise<void> => {
      for (let key = keys[next++]; key !== undefined; key = keys[next++]) {
        const told = key;
        const lost = watched ? (): void => void process.send?.({ lost: told }) : undefined;
        held.push((await opened().hold?.(key, ttl, lost)) ?? nothing);
      }
    };
    await Promise.all(Array.from({ length: 100 }, lane));
    return { heap: (usedHeap() - before) / keys.length };
  },

  async release({ inFlight }) {
    await inBatches(held.splice(0), inFlight, (release) => release());
    return undefined;
  },

  async fail({ attempts, budget, within }) {
    const before = usedHeap();
    const taken: number[] = [];
    const one = async (index: number): Promise<void> => {
      const begun = performance.now();
      const limited = opened().tryFor;
      const tried = limited
        ? limited(`fail:${index}`, 10_000, budget)
        : opened().acquire(`fail:${index}`, 10_000);
      await tried.then(
        () => undefined,
        () => taken.push(performance.now() - begun - (limited ? budget : 0)),
      );
    };
    const all = Promise.all(Array.from({ length: attempts }, (_, index) => one(index)));
    await Promise.race([all, sleep(within)]);
    await sleep(100);
    return {
      late: taken.length === attempts ? Math.max(...taken) : Infinity,
      heap: (usedHeap() - before) / attempts,
    };
  },

  // This import loads Nest, which the other tasks may not need.
  offer: async (args) => (await import('./measure/offer.js')).offer(args),

  cpu() {
    const { user, system } = process.cpuUsage();
    return Promise.resolve((user + system) / 1_000);
  },
};

const nothing = (): Promise<void> => Promise.resolve();

/** Acquires and releases. Except for `withLock`, calls `acquired` in between. */
async function lock(how: How, key: string, acquired?: () => void): Promise<void> {
  const current = opened();
  if (how === 'withLock') {
    await current.withLock(key, TTL, nothing);
    return;
  }
  const release = await (how === 'hold' ? current.hold?.(key, TTL) : current.acquire(key, TTL));
  acquired?.();
  await release?.();
}

/** Each lane takes its next turn when its previous turn has ended. */
async function inLanes(
  lanes: number,
  count: number,
  run: (lane: number, turn: number) => Promise<unknown>,
): Promise<void> {
  let turns = 0;
  const goOn = async (lane: number): Promise<void> => {
    while (turns < count) await run(lane, turns++);
  };
  await Promise.all(Array.from({ length: lanes }, (_, lane) => goOn(lane)));
}

/** A batch begins when all items of the previous batch have ended. */
async function inBatches<T>(
  items: readonly T[],
  size: number,
  run: (item: T) => Promise<unknown>,
): Promise<void> {
  for (let at = 0; at < items.length; at += size) await Promise.all(items.slice(at, at + size).map(run));
}

function opened(): Session {
  if (!session) throw new Error('no contender is open: send the task `open` first');
  return session;
}

function usedHeap(): number {
  globalThis.gc?.();
  return process.memoryUsage().heapUsed;
}

// A call of a library that fails after its measurement must not end the process.
process.on('unhandledRejection', () => undefined);
// Ends the process when its parent has ended.
process.once('disconnect', () => process.exit());
process.on('message', (request: Request) => {
  const perform = work[request.job] as (args: unknown) => Promise<unknown>;
  perform(request.args).then(
    (result) => process.send?.({ id: request.id, result }),
    (error: unknown) => process.send?.({ id: request.id, error: String(error) }),
  );
});
