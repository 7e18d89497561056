import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { LockHeldError } from '../../../lib/core/errors.js';
import { Lease } from '../../../lib/core/lease.js';
import { EXCLUSIVE, SHARED } from '../../../lib/core/lock-mode.js';
import type { Store } from '../../../lib/core/ports.js';
import { HeldLock } from '../../../lib/redlock/held-lock.js';
import { NO_RETRY } from '../../../lib/core/lock-options.js';
import type { AcquireTerms, Redlock } from '../../../lib/redlock/redlock.js';
import { redlockOver } from '../../support/core.js';
import { type ScriptedNode, scriptedNodes } from '../../support/scripted-node.js';

// Waiting on nodes in memory, with fake timers. test/stores/redis/scripts.test.ts tests the scripts of Redis, and
// test/waiting tests the waiting on real servers.

const once: AcquireTerms = { ttl: 60_000, retry: NO_RETRY, renew: false, signals: [] };
const waiting: AcquireTerms = {
  ...once,
  retry: { timeout: 30_000, attempts: Infinity, delay: 200, jitter: 0 },
};

beforeEach(() => {
  jest.useFakeTimers();
});
afterEach(() => {
  jest.useRealTimers();
});

const pass = (milliseconds: number): Promise<void> => jest.advanceTimersByTimeAsync(milliseconds);

function asked(nodes: readonly ScriptedNode[]): number[] {
  return nodes.map((node) => node.count('acquire'));
}

function forget(nodes: readonly ScriptedNode[]): void {
  for (const node of nodes) node.requests.length = 0;
}

describe('in one process', () => {
  test('only the first waiter of a process asks the nodes, and the other waiters get the lock in order', async () => {
    const nodes = scriptedNodes(1);
    const redlock = redlockOver(nodes);
    const held = await redlock.acquire(['k'], once);
    forget(nodes);
    const served: number[] = [];
    const wait = async (index: number): Promise<void> => {
      const lock = await redlock.acquire(['k'], waiting);
      served.push(index);
      await lock.release();
    };
    const calls = [wait(0)];
    await pass(1);
    // The first request finds the lock held. The second one joins the queue.
    expect(asked(nodes)).toEqual([2]);
    forget(nodes);
    calls.push(...[1, 2, 3].map(wait));
    await pass(4_000);
    expect(asked(nodes)).toEqual([0]);
    await held.release();
    await pass(10);
    await Promise.all(calls);
    expect(served).toEqual([0, 1, 2, 3]);
    expect(asked(nodes)).toEqual([4]);
  });

  test.each([
    ['behind', [waiting, once, waiting]],
    ['in front of', [once, waiting, waiting]],
  ])('calls keep their order, with one %s them that does not wait', async (_, terms) => {
    const nodes = scriptedNodes(3);
    const held = await redlockOver(nodes, { owner: 'other' }).acquire(['k'], once);
    const redlock = redlockOver(nodes);
    const served: number[] = [];
    const calls = terms.map(async (options, index) => {
      const lock = await redlock.acquire(['k'], options).catch(() => undefined);
      if (lock) served.push(index);
      await lock?.release();
    });
    await pass(100);
    await held.release();
    await pass(2_000);
    await Promise.all(calls);
    expect(served).toEqual(terms.flatMap((options, index) => (options === waiting ? [index] : [])));
  });

  test('a call that comes behind another after a slow first attempt gives up when its own `timeout` has passed', async () => {
    const nodes = scriptedNodes(1);
    const redlock = redlockOver(nodes, { nodeTimeout: 1_000 });
    const held = await redlock.acquire(['k'], once);
    nodes[0]!.fate = { acquire: 290 };
    const began = performance.now();
    // Readers make their first attempts at the same time.
    const read = (timeout: number): Promise<number> =>
      redlock
        .acquire(['k'], { ...waiting, kind: SHARED, retry: { ...waiting.retry, timeout } })
        .then((lock) => lock.release())
        .catch(() => undefined)
        .then(() => performance.now() - began);
    const first = read(30_000);
    const second = read(600);
    await pass(2_000);
    await held.release();
    await pass(1_000);
    expect(await first).toBeGreaterThan(2_000);
    expect(await second).toBeLessThanOrEqual(610);
  });

  test('a waiter behind other waiters counts its waiting time as attempts, and sends no request', async () => {
    const nodes = scriptedNodes(1);
    const redlock = redlockOver(nodes, { owner: 'alice' });
    await redlock.acquire(['k'], once);
    const first = redlock.acquire(['k'], waiting).catch((error: unknown) => error);
    await pass(10);
    forget(nodes);
    const settled: unknown[] = [];
    redlock
      .acquire(['k'], { ...waiting, retry: { ...waiting.retry, attempts: 4 } })
      .catch((error: unknown) => settled.push(error));
    await pass(590);
    expect(settled).toEqual([]);
    await pass(20);
    expect(settled).toEqual([expect.any(LockHeldError)]);
    expect(settled[0]).toMatchObject({ owner: 'alice', limit: { attempts: 4 } });
    expect(asked(nodes)).toEqual([0]);
    await pass(30_000);
    await expect(first).resolves.toBeInstanceOf(LockHeldError);
  });

  test.each([
    ['comes later', 100],
    ['comes at the same moment', 0],
  ])(
    'without messages, the first waiter asks as often as a waiter behind it that %s and has a shorter `delay`',
    async (_when, later) => {
      const nodes = scriptedNodes(1);
      nodes[0]!.listen = () => ({ ready: false, stop: () => undefined });
      const redlock = redlockOver(nodes);
      const held = await redlock.acquire(['k'], once);
      const wait = (delay: number) =>
        redlock
          .acquire(['k'], { ...waiting, retry: { ...waiting.retry, delay } })
          .then((lock) => lock.release());
      const calls = [wait(4_000)];
      await pass(later);
      calls.push(wait(50));
      await pass(100);
      await held.release();
      forget(nodes);
      await pass(100);
      await Promise.all(calls);
      expect(asked(nodes)).toEqual([2]);
    },
  );

  test('a waiter for one key does not delay a call for a different key in the same process', async () => {
    const redlock = redlockOver(scriptedNodes(1));
    await redlock.acquire(['k'], once);
    const stuck = redlock.acquire(['k'], waiting).catch(() => undefined);
    await pass(10);
    await expect(redlock.acquire(['other'], waiting)).resolves.toBeInstanceOf(HeldLock);
    await pass(31_000);
    await stuck;
  });

  test('the second waiter of a process gets the lock when the first waiter gives up', async () => {
    const nodes = scriptedNodes(1);
    const redlock = redlockOver(nodes);
    const held = await redlock.acquire(['k'], once);
    const controller = new AbortController();
    const first = redlock.acquire(['k'], { ...waiting, signals: [controller.signal] });
    const outcome = first.catch((error: unknown) => error);
    const second = redlock.acquire(['k'], waiting);
    await pass(10);
    controller.abort(new Error('enough'));
    await expect(outcome).resolves.toEqual(new Error('enough'));
    await held.release();
    await pass(10);
    await expect(second).resolves.toBeInstanceOf(HeldLock);
  });
});

describe('a store that throws synchronously instead of rejecting', () => {
  const away = new Error('not connected');

  test('a waiter still acquires the lock when the `leave` of a node and the `stop` of its listener throw', async () => {
    const nodes = scriptedNodes(3);
    const redlock = redlockOver(nodes);
    const held = await redlock.acquire(['k'], once);
    let throws = 0;
    const fail = (): never => {
      throws++;
      throw away;
    };
    nodes[0]!.listen = () => ({ ready: true, stop: fail });
    const waiter = redlock.acquire(['k'], waiting);
    await pass(100);
    // The waiter is in the queue of this node, and gets the lock on the other nodes.
    Object.assign(nodes[0]!, { fate: { acquire: away }, leave: fail });
    await held.release();
    await pass(10_000);
    await expect(waiter).resolves.toBeInstanceOf(HeldLock);
    expect(throws).toBe(2);
    await (await waiter).release();
    await redlock.close();
  });

  test('a waiter still acquires the lock when `letPass` throws', async () => {
    const [node] = scriptedNodes(1);
    let throws = 0;
    const guard: Pick<Store, 'holdBack' | 'letPass'> = {
      holdBack: () => Promise.resolve(true),
      letPass: () => {
        throws++;
        throw away;
      },
    };
    const redlock = redlockOver([Object.assign(node!, guard)]);
    const held = await redlock.acquire(['k'], { ...once, kind: SHARED });
    const waiter = redlock.acquire(['k'], waiting);
    await pass(100);
    await held.release();
    await pass(10_000);
    await expect(waiter).resolves.toBeInstanceOf(HeldLock);
    expect(throws).toBe(1);
    await (await waiter).release();
    await redlock.close();
  });
});

// `holdBack` asks a node to refuse later callers in favour of this waiter.
describe('holdBack while the node refuses callers in favour of another waiter:', () => {
  const shared: AcquireTerms = { ...once, kind: SHARED };

  /**
   * A node on which readers hold the lock. For `standsFor` milliseconds it answers `holdBack` with `false`, because it
   * refuses callers in favour of another waiter. `told` has the times of the calls of `holdBack`.
   */
  async function marked(standsFor: number): Promise<{ node: ScriptedNode; held: HeldLock; told: number[] }> {
    const [node] = scriptedNodes(1) as [ScriptedNode];
    const held = await redlockOver([node], { owner: 'alice' }).acquire(['k'], shared);
    const [began, told]: [number, number[]] = [performance.now(), []];
    Object.assign(node, {
      holdBack: () => {
        told.push(performance.now() - began);
        return Promise.resolve(told.at(-1)! >= standsFor);
      },
      letPass: () => Promise.resolve(),
    } satisfies Partial<Store>);
    return { node, held, told };
  }

  test('holdBack is repeated every 50 ms until the node returns true, and from then on with each retry', async () => {
    const { node, held, told } = await marked(170);
    const waits = redlockOver([node]).acquire(['k'], waiting);
    await pass(900);
    // Two calls came at once, because the node refused two requests: the first one, and the one that joined the queue.
    expect(told).toEqual([0, 0, 50, 100, 150, 200]);
    await pass(200);
    expect(told.slice(6)).toEqual([1_000]);
    await held.release();
    await pass(10);
    await (await waits).release();
  });

  test('holdBack is not repeated when the store returns undefined or throws', async () => {
    for (const holdBack of [
      () => Promise.resolve(undefined as never),
      () => {
        throw new Error('not as the port says');
      },
    ]) {
      const { node, held } = await marked(0);
      let times = 0;
      Object.assign(node, {
        holdBack: () => {
          times++;
          return holdBack();
        },
      } satisfies Partial<Store>);
      const waits = redlockOver([node]).acquire(['k'], waiting);
      await pass(900);
      // Each of two refused requests led to one call: the first request, and the one that joined the queue.
      expect(times).toBe(2);
      await held.release();
      await pass(10);
      await (await waits).release();
    }
  });

  test('holdBack is not repeated after the waiter acquired, gave up, or met an exclusive holder', async () => {
    for (const end of ['granted', 'aborted', 'exclusive'] as const) {
      const { node, held, told } = await marked(Infinity);
      const controller = new AbortController();
      const waits = redlockOver([node]).acquire(['k'], { ...waiting, signals: [controller.signal] });
      const outcome = waits.catch((error: unknown) => error);
      await pass(120);
      expect(told).toEqual([0, 0, 50, 100]);
      if (end === 'aborted') controller.abort(new Error('enough'));
      else if (end === 'granted') await held.release();
      else {
        const lease = new Lease(['k'], 'carol', 60_000);
        const request = { lease, since: 0, limit: 1_000, guard: 0, proposal: 0, position: undefined };
        node.memory.release([{ lease: held.lease, pause: 0 }], () => undefined);
        // The new holder acquires before the waiters ask again.
        node.memory.acquire([request], false, () => undefined);
      }
      await pass(10);
      const before = told.length;
      await pass(3_000);
      expect([end, told.length]).toEqual([end, before]);
      controller.abort(new Error('enough'));
      await outcome;
    }
  });

  test('holdBack is repeated by a timer that does not keep the process alive', async () => {
    const { node } = await marked(Infinity);
    const controller = new AbortController();
    const before = jest.getTimerCount();
    const timers = jest.spyOn(globalThis, 'setTimeout');
    const waits = redlockOver([node]).acquire(['k'], { ...waiting, signals: [controller.signal] });
    await pass(10);
    const again = timers.mock.calls.flatMap(([, delay], index) =>
      delay === 50 ? [timers.mock.results[index]!.value as NodeJS.Timeout] : [],
    );
    expect(again.map((timer) => timer.hasRef())).toEqual([false]);
    controller.abort(new Error('enough'));
    await expect(waits).rejects.toThrow('enough');
    expect(jest.getTimerCount()).toBe(before);
  });
});

// The queue node is the node that keeps the queue of waiters: the first node that answers.
describe('on several nodes', () => {
  function processes(nodes: readonly ScriptedNode[]): { alice: Redlock; bob: Redlock } {
    return { alice: redlockOver(nodes, { owner: 'alice' }), bob: redlockOver(nodes, { owner: 'bob' }) };
  }

  test('a waiter in the queue asks other nodes, too, after its longest sleep, at its turn and in its last attempt', async () => {
    const nodes = scriptedNodes(5);
    const { alice, bob } = processes(nodes);
    const held = await alice.acquire(['k'], once);
    forget(nodes);
    const next = bob.acquire(['k'], waiting);
    await pass(1);
    // The first request finds the lock held. The second one joins the queue.
    expect(asked(nodes)).toEqual([2, 1, 1, 0, 0]);
    forget(nodes);
    await pass(4_900);
    expect(asked(nodes)).toEqual([0, 0, 0, 0, 0]);
    await pass(200);
    expect(asked(nodes)).toEqual([1, 1, 1, 0, 0]);
    forget(nodes);
    await held.release();
    await pass(1);
    await expect(next).resolves.toBeInstanceOf(HeldLock);
    expect(asked(nodes)).toEqual([1, 1, 1, 1, 1]);

    forget(nodes);
    const vain = alice.acquire(['k'], { ...waiting, retry: { ...waiting.retry, timeout: 2_000 } });
    const refused = vain.catch((error: unknown) => error);
    await pass(1_000);
    forget(nodes);
    await pass(1_100);
    await expect(refused).resolves.toMatchObject({ owner: 'bob', limit: { timeout: 2_000 } });
    expect(asked(nodes)).toEqual([1, 1, 1, 0, 0]);
  });

  describe('while the queue node alone stores a lease that holds no lock', () => {
    /** Three nodes. The first one stores a lease of a process that was killed. */
    async function withOrphan(): Promise<ScriptedNode[]> {
      const nodes = scriptedNodes(3);
      await redlockOver([nodes[0]!], { owner: 'killed' }).acquire(['k'], once);
      return nodes;
    }

    test('a waiter gets the lock at once when it is released on the other nodes', async () => {
      const nodes = await withOrphan();
      const { alice, bob } = processes(nodes);
      const held = await alice.acquire(['k'], once);
      const next = bob.acquire(['k'], waiting);
      await pass(1_000);
      forget(nodes);
      void held.release();
      await pass(10);
      await expect(next).resolves.toBeInstanceOf(HeldLock);
      expect(asked(nodes)).toEqual([1, 1, 1]);
    });

    test.each([['exclusive'], ['permits']] as const)(
      'a waiter asks again while a release is still on its way to the other nodes: %s',
      async (mode) => {
        const nodes = await withOrphan();
        const { alice, bob } = processes(nodes);
        const kind = mode === 'permits' ? { mode, permits: 1 } : EXCLUSIVE;
        // All nodes are asked before the first answer, as on real connections.
        for (const node of nodes) node.fate = { acquire: 1 };
        const acquired = alice.acquire(['k'], { ...once, kind });
        await pass(10);
        const held = await acquired;
        const next = bob.acquire(['k'], { ...waiting, kind });
        await pass(1_000);
        for (const { memory } of nodes.slice(1)) {
          const release = memory.release.bind(memory);
          memory.release = (requests, tell) => void setTimeout(() => release(requests, tell), 2);
        }
        void held.release();
        await pass(50);
        await expect(next).resolves.toBeInstanceOf(HeldLock);
      },
    );

    test('a waiter asks again when a `minHold` on the other nodes has passed, before all of them have answered', async () => {
      const nodes = scriptedNodes(5);
      await redlockOver([nodes[0]!], { owner: 'killed' }).acquire(['k'], once);
      const { alice, bob } = processes(nodes);
      // Bob learns that only the first node stores that lease.
      void (await bob.acquire(['k'], once)).release();
      await pass(10);
      const held = await alice.acquire(['k'], { ...once, minHold: 100 });
      void held.release();
      await pass(10);
      // Three refusals decide the attempt, and two of them name Alice.
      const outcome = bob.acquire(['k'], { ...waiting, retry: { ...waiting.retry, timeout: 2_000 } });
      let isHeld = false;
      void outcome.then(() => (isHeld = true));
      await pass(200);
      expect(isHeld).toBe(true);
    });

    test('the release of a failed attempt tells nobody', async () => {
      const nodes = await withOrphan();
      const { alice, bob } = processes(nodes);
      const held = await alice.acquire(['k'], once);
      const next = bob.acquire(['k'], waiting);
      await pass(1_000);
      forget(nodes);
      nodes[0]!.fate = { acquire: 'hang' };
      const vain = alice.acquire(['k'], once).catch((error: unknown) => error);
      await pass(1_000);
      await expect(vain).resolves.toBeInstanceOf(LockHeldError);
      expect(nodes[0]!.count('release')).toBe(1);
      expect(asked(nodes)).toEqual([1, 1, 1]);
      nodes[0]!.fate = {};
      await held.release();
      await pass(10);
      await expect(next).resolves.toBeInstanceOf(HeldLock);
    });

    test('a call asks the other nodes, too, if an earlier call of its process has seen that they do not store it', async () => {
      const nodes = await withOrphan();
      const { alice } = processes(nodes);
      const held = await alice.acquire(['k'], once);
      await held.release();
      nodes[0]!.contended = () => true;
      forget(nodes);
      const next = alice.acquire(['k'], waiting);
      await pass(10);
      await expect(next).resolves.toBeInstanceOf(HeldLock);
      expect(asked(nodes)).toEqual([1, 1, 1]);
    });

    test('another call asks them after five seconds', async () => {
      const nodes = await withOrphan();
      const { bob } = processes(nodes);
      nodes[0]!.contended = () => true;
      const next = bob.acquire(['k'], waiting);
      await pass(4_900);
      expect(asked(nodes).slice(1)).toEqual([0, 0]);
      await pass(200);
      await expect(next).resolves.toBeInstanceOf(HeldLock);
    });
  });

  test('while too few nodes vote, a waiter asks as seldom as while the lock is held', async () => {
    const nodes = scriptedNodes(3);
    const { alice, bob } = processes(nodes);
    for (const node of nodes.slice(1)) node.fate = { acquire: new Error('down'), release: new Error('down') };
    const waits = [alice, alice, bob, bob].map((redlock) =>
      redlock.acquire(['k'], waiting).catch(() => undefined),
    );
    await pass(1_000);
    forget(nodes);
    await pass(3_000);
    // Each process asks at most every 100 ms, the shortest pause.
    expect(nodes[0]!.count('acquire')).toBeLessThanOrEqual(60);
    await pass(30_000);
    await Promise.all(waits);
  });

  test('the second node becomes the queue node when the first node is down', async () => {
    const nodes = scriptedNodes(5);
    const { alice, bob } = processes(nodes);
    const held = await alice.acquire(['k'], once);
    nodes[0]!.available = false;
    nodes[0]!.fate = { acquire: new Error('down'), release: new Error('down') };
    const next = bob.acquire(['k'], waiting);
    await pass(1);
    forget(nodes);
    await pass(5_100);
    expect(asked(nodes)).toEqual([1, 1, 1, 1, 0]);
    await held.release();
    await pass(50);
    await expect(next).resolves.toBeInstanceOf(HeldLock);
  });

  test('a waiter acquires at its turn without the vote of the queue node', async () => {
    const nodes = scriptedNodes(3);
    const { alice, bob } = processes(nodes);
    const held = await alice.acquire(['k'], once);
    const next = bob.acquire(['k'], waiting);
    await pass(1);
    nodes[0]!.fate = { acquire: new Error('restarted a short while ago') };
    forget(nodes);
    await held.release();
    await pass(10);
    expect(asked(nodes)).toEqual([1, 1, 1]);
    await expect(next).resolves.toBeInstanceOf(HeldLock);
  });

  test('a waiter asks all nodes at once when the queue node, which it asked alone, gives no vote', async () => {
    const nodes = scriptedNodes(3);
    const { alice, bob } = processes(nodes);
    const held = await alice.acquire(['k'], { ...once, ttl: 3_000 });
    const next = bob.acquire(['k'], waiting);
    await pass(1);
    const error = new Error('restarted a short while ago');
    nodes[0]!.fate = { acquire: error, release: error };
    forget(nodes);
    // The queue node does not process the release, so Bob gets no message, and sleeps until the end of the lock.
    await held.release();
    await pass(2_900);
    expect(asked(nodes)).toEqual([0, 0, 0]);
    await pass(110);
    expect(asked(nodes)).toEqual([2, 1, 1]);
    await expect(next).resolves.toBeInstanceOf(HeldLock);
  });

  test('after split votes, the attempt that the queue node granted continues, and the other attempts back off', async () => {
    const nodes = scriptedNodes(5);
    const { alice, bob } = processes(nodes);
    // Alice's request arrives first at nodes 0 (the queue node) and 1, Bob's at nodes 2 and 3. Carol holds the lock on
    // node 4 only.
    await redlockOver([nodes[4]!], { owner: 'carol' }).acquire(['k'], once);
    for (const node of nodes.slice(0, 2)) {
      const { acquire } = node.memory;
      node.memory.acquire = (requests, ordered, tell) => {
        const ask = (): void => acquire.call(node.memory, requests, ordered, tell);
        if (requests[0]?.lease.owner === 'bob') setTimeout(ask, 2);
        else ask();
      };
    }
    const second = bob.acquire(['k'], waiting);
    const first = alice.acquire(['k'], waiting);
    await pass(30);
    const lock = await first;
    expect(lock.isHeld()).toBe(true);
    await lock.release();
    await pass(300);
    await expect(second).resolves.toBeInstanceOf(HeldLock);
  });

  test.each([
    ['one of three nodes may not vote yet', 3, [1], [2], []],
    ['the nodes name two holders', 4, [1, 2], [], [3]],
  ])(
    'a waiter asks more and more rarely while every attempt splits the vote (S8): %s',
    async (_, count, ofCarol, young, ofDave) => {
      const nodes = scriptedNodes(count);
      const locks = [];
      for (const [owner, held] of Object.entries({ carol: ofCarol, dave: ofDave })) {
        for (const index of held)
          locks.push(await redlockOver([nodes[index]!], { owner }).acquire(['k'], once));
      }
      for (const index of young) nodes[index]!.fate = { acquire: new Error('restarted a short while ago') };
      const { bob } = processes(nodes);
      const next = bob.acquire(['k'], waiting);
      await pass(1_000);
      forget(nodes);
      await pass(2_000);
      // The usual pause is 200 to 300 ms. The pause after the first split vote is 10 to 20 ms.
      expect(asked(nodes)[0]).toBeLessThanOrEqual(15);
      expect(asked(nodes)[0]).toBeGreaterThanOrEqual(4);
      for (const lock of locks) await lock.release();
      await pass(500);
      await expect(next).resolves.toBeInstanceOf(HeldLock);
    },
  );

  test.each([
    ['the queue node has two', [[1, 3], [], [4]], 8],
    // Each attempt makes the queue node free the permit that it granted, and leaves the waiter in its queue.
    ['most of the others have the same', [[1], [3], [3], [], []], 0],
  ])(
    'waiters for permits ask more and more rarely while the nodes have no free permit in common (S8): %s',
    async (_, freeSlots, least) => {
      const nodes = scriptedNodes(freeSlots.length);
      const permits = (terms: AcquireTerms): AcquireTerms => ({
        ...terms,
        kind: { mode: 'permits', permits: 5 },
      });
      const locks = [];
      for (const [index, node] of nodes.entries()) {
        const carol = redlockOver([node], { owner: 'carol' });
        for (let each = 0; each < 5; each++) locks.push(await carol.acquire(['k'], permits(once)));
        for (const lock of locks.slice(-5)) if (freeSlots[index]!.includes(lock.slot!)) await lock.release();
      }
      const { alice, bob } = processes(nodes);
      const waits = [alice, bob].map((process) => process.acquire(['k'], permits(waiting)));
      await pass(1_000);
      forget(nodes);
      await pass(2_000);
      // Two processes: the usual pause is 200 to 300 ms, and the release of a failed attempt tells the other process.
      expect(asked(nodes)[0]).toBeLessThanOrEqual(60);
      expect(asked(nodes)[0]).toBeGreaterThanOrEqual(least);
      for (const lock of locks) await lock.release();
      // No release tells the waiters about more than one node.
      await pass(6_000);
      for (const wait of waits) await expect(wait).resolves.toBeInstanceOf(HeldLock);
    },
  );

  test('an attempt asks nodes again while a release is still on its way to them', async () => {
    const nodes = scriptedNodes(5);
    const { alice, bob } = processes(nodes);
    const held = await alice.acquire(['k'], once);
    const next = bob.acquire(['k'], waiting);
    await pass(1);
    // The queue node is quick: it sends Bob a message before the other nodes have processed the release.
    const late = nodes.slice(1).map((node) => {
      const { release } = node.memory;
      node.memory.release = (claim, after) =>
        new Promise((resolve) => setTimeout(() => resolve(release.call(node.memory, claim, after)), 2));
      return node;
    });
    forget(nodes);
    void held.release();
    await pass(20);
    await expect(next).resolves.toBeInstanceOf(HeldLock);
    expect(late.filter((node) => node.count('acquire') > 1).length).toBeGreaterThanOrEqual(2);
    expect(asked(nodes)[0]).toBe(1);
  });

  test('a cancelled attempt releases the lock also on nodes that refused its first request and did not answer its second request (S6)', async () => {
    const nodes = scriptedNodes(5);
    const others = nodes.slice(1);
    const held = await redlockOver(others, { owner: 'alice' }).acquire(['k'], once);
    const controller = new AbortController();
    const bob = redlockOver(nodes, { owner: 'bob' });
    const attempt = bob.acquire(['k'], { ...once, signals: [controller.signal] });
    const outcome = attempt.catch((error: unknown) => error);
    // The first answers have come. The nodes process the second requests, and no answer arrives.
    await pass(0);
    await held.release();
    for (const node of others) node.fate = { acquire: 'hang' };
    await pass(5);
    expect(nodes.filter((node) => node.memory.size === 1).length).toBeGreaterThanOrEqual(3);
    controller.abort(new Error('enough'));
    await pass(5);
    await expect(outcome).resolves.toEqual(new Error('enough'));
    expect(nodes.map((node) => node.memory.size)).toEqual([0, 0, 0, 0, 0]);
  });
});

test.each([
  // A quorum answers with errors, so the cause is known.
  [
    'rejects with the errors of the nodes when a quorum answers with errors',
    new Error('WRONGTYPE'),
    { code: 'LOCK_UNAVAILABLE' },
  ],
  // The last attempt had little time, so a missing answer proves nothing.
  [
    'rejects with the last known holder when nodes do not answer in time',
    'hang',
    { code: 'LOCK_HELD', owner: 'alice' },
  ],
] as const)('the last attempt of a wait %s', async (_what, fate, expected) => {
  const nodes = scriptedNodes(3);
  await redlockOver(nodes, { owner: 'alice' }).acquire(['k'], once);
  const outcome = redlockOver(nodes, { owner: 'bob' })
    .acquire(['k'], { ...waiting, retry: { ...waiting.retry, timeout: 1_000 } })
    .catch((error: unknown) => error);
  await pass(500);
  for (const node of nodes.slice(1)) node.fate = { acquire: fate };
  await pass(600);
  await expect(outcome).resolves.toMatchObject(expected);
});
