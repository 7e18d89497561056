import { setTimeout as sleep } from 'node:timers/promises';
import { contender } from './contenders/contenders.js';
import type { Release, Session } from './contenders/contender.js';
import { median } from './measure/statistics.js';
import type { Request, Work } from './work.js';

// A process of its own for one contender: it can be fresh, one of several, or end while calls hang.

let session: Session | undefined;
const held: Release[] = [];

const work: Work = {
  async open({ name, urls }) {
    const begun = performance.now();
    session = await contender(name).open(urls);
    return performance.now() - begun;
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

  async release() {
    await Promise.all(held.splice(0).map((release) => release()));
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

  cpu() {
    const { user, system } = process.cpuUsage();
    return Promise.resolve((user + system) / 1_000);
  },
};

const nothing = (): Promise<void> => Promise.resolve();

function opened(): Session {
  if (!session) throw new Error('nothing is open');
  return session;
}

function usedHeap(): number {
  globalThis.gc?.();
  return process.memoryUsage().heapUsed;
}

// A library that is left hanging must not take the measurement with it.
process.on('unhandledRejection', () => undefined);
// Otherwise it would outlive a parent that was stopped.
process.once('disconnect', () => process.exit());
process.on('message', (request: Request) => {
  const perform = work[request.job] as (args: unknown) => Promise<unknown>;
  perform(request.args).then(
    (result) => process.send?.({ id: request.id, result }),
    (error: unknown) => process.send?.({ id: request.id, error: String(error) }),
  );
});
