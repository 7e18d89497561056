import { strict as assert } from 'node:assert';
import type { Lease } from '../../core/lease.js';
import {
  type Contract,
  freshKey,
  inTurn,
  kindOf,
  leaseOf,
  TTL,
  type QueuedCaller,
  type Terms,
} from './store-asker.js';

/** Milliseconds for which a released lock stays held, or its waiters wait, in these tests. */
const PAUSE = 1_500;

/** Milliseconds by which the clocks of a store and of this process may run apart during a test. */
const ROUNDING = 20;

/** The number of waiters for one key at a time. */
const MANY = 12;

/** The contract of the turns: which waiter a store tells, and when, after each way in which a key becomes free. */
export function turnsContract({ test: contractTest, open, modes }: Contract): void {
  const test = inTurn(contractTest);

  for (const mode of modes) {
    const blocking = kindOf(mode === 'shared' && modes.includes('exclusive') ? 'exclusive' : mode, 1);
    const kind = kindOf(mode, 1);
    if (blocking.mode === 'shared') continue;

    test(`tells a waiter in the mode '${mode}' when the holder is released by force`, async () => {
      const ask = open();
      if (!ask.store.listen) return;
      const key = freshKey();
      const holder = leaseOf(blocking, key);
      await ask.granted(holder, { ordered: true });
      const waiter = await ask.queued(kind, key);
      assert.deepEqual(await ask.store.forceRelease?.(key, [holder.id]), [holder.id]);
      await waiter.toldAtOnce();
      await ask.granted(leaseOf(kind, key), waiter.terms);
      await waiter.leave();
    });

    test(`tells a waiter in the mode '${mode}' when it may try after a lock of several keys is released, for each key`, async () => {
      const ask = open();
      if (!ask.store.listen) return;
      const keys = [freshKey(), freshKey(), freshKey()];
      const holder = leaseOf(blocking, keys);
      holder.slots = (await ask.granted(holder, { ordered: true })).slots;
      const waiters: QueuedCaller[] = [];
      for (const key of keys) waiters.push(await ask.queued(kind, key));
      await ask.release(holder);
      for (const waiter of waiters) {
        await waiter.toldAtOnce();
        await ask.granted(leaseOf(kind, waiter.id.keys), waiter.terms);
        await waiter.leave();
      }
    });

    if (mode === 'shared') continue;

    test(`tells a waiter in the mode '${mode}' to try when \`keepFor\` has passed, and not before`, async () => {
      const ask = open();
      if (!ask.store.listen) return;
      const key = freshKey();
      const holder = leaseOf(kind, key);
      await ask.granted(holder, { ordered: true });
      const waiter = await ask.queued(kind, key);
      const began = performance.now();
      holder.acquired(began, PAUSE);
      await ask.release(holder);
      await waiter.toldToTry(PAUSE);
      assert.ok(performance.now() - began >= PAUSE - ROUNDING, 'the store tells the waiter too early');
      // The last milliseconds of the lock may still be left.
      await ask.lapsed(key, holder);
      await ask.granted(leaseOf(kind, key), waiter.terms);
      await waiter.leave();
    });

    test(`tells no waiter in the mode '${mode}' to try before the pause of a release has passed`, async () => {
      const ask = open();
      // The pauses are for attempts that several nodes have split, so a store that is always the only node needs none.
      if (!ask.store.listen || !ask.store.raise) return;
      const key = freshKey();
      const holder = leaseOf(kind, key);
      await ask.granted(holder, { ordered: true });
      const waiter = await ask.queued(kind, key);
      const began = performance.now();
      await ask.release(holder, PAUSE);
      await waiter.toldToTry(PAUSE);
      assert.ok(performance.now() - began >= PAUSE - ROUNDING, 'the store ignores the pause');
      await ask.granted(leaseOf(kind, key), waiter.terms);
      await waiter.leave();
    });

    test(`keeps the position of a waiter in the mode '${mode}' that asks again, and orders waiters by the time they came`, async () => {
      const ask = open();
      if (!ask.store.listen) return;
      const key = freshKey();
      const holder = leaseOf(kind, key);
      await ask.granted(holder, { ordered: true });
      const first = await ask.waiter(mode, key);
      const second = await ask.queued(kind, key);
      const third = await ask.queued(kind, key);
      // The first waiter asks last, and the second one asks again.
      for (const waiter of [second, first]) await ask.refused(leaseOf(kind, key), waiter.terms);
      await ask.release(holder);
      for (const waiter of [first, second, third]) {
        await waiter.toldAtOnce();
        const lease = leaseOf(kind, key);
        await ask.granted(lease, waiter.terms);
        await ask.release(lease);
        await waiter.leave();
      }
    });

    test(`tells each of ${MANY} waiters in the mode '${mode}', in the order in which they came`, async () => {
      const ask = open();
      if (!ask.store.listen) return;
      const key = freshKey();
      let held: Lease = leaseOf(kind, key);
      await ask.granted(held, { ordered: true });
      const waiters: QueuedCaller[] = [];
      for (let count = 0; count < MANY; count++) waiters.push(await ask.queued(kind, key));
      for (const waiter of waiters) {
        await ask.release(held);
        await waiter.toldAtOnce();
        held = leaseOf(kind, key);
        await ask.granted(held, waiter.terms);
      }
      for (const waiter of waiters) await waiter.leave();
    });

    for (const [order, isBefore] of [
      ['in front of', true],
      ['behind', false],
    ] as const) {
      test(`lets the next waiter of the granted process take over the position, ${order} a waiter in the mode '${mode}' of another process`, async () => {
        const ask = open();
        if (!ask.store.listen) return;
        const key = freshKey();
        const holder = leaseOf(kind, key);
        await ask.granted(holder, { ordered: true });
        const granted = await ask.queued(kind, key);
        // `next` is the wait of the second call in the process of `granted`. This waiter stands for that call.
        const next = isBefore ? await ask.waiter(mode, key) : undefined;
        const other = await ask.queued(kind, key);
        const second = next ?? (await ask.waiter(mode, key));
        await ask.release(holder);
        await granted.toldAtOnce();
        const lease = leaseOf(kind, key);
        const { nextIsFirst = false } = await ask.granted(lease, granted.termsWith(second.waited));
        assert.ok(isBefore || !nextIsFirst, '`nextIsFirst` is true, but another waiter is the first');
        for (const waiter of [granted, other]) waiter.forget();
        const [front, back] = isBefore ? [granted, other] : [other, granted];
        await ask.release(lease);
        if (!nextIsFirst) await front.toldAtOnce();
        const own = { ...second.terms, position: { ...second.terms.position!, waiter: granted.id } };
        const termsOf = (waiter: QueuedCaller): typeof own =>
          waiter === granted ? own : (other.terms as typeof own);
        await ask.refused(leaseOf(kind, key), termsOf(back));
        const taken = leaseOf(kind, key);
        await ask.granted(taken, termsOf(front));
        await ask.release(taken);
        await back.toldAtOnce();
        await ask.granted(leaseOf(kind, key), termsOf(back));
        for (const waiter of [granted, second, other]) await waiter.leave();
      });
    }

    test(`keeps a waiter in the mode '${mode}' only in the queue of the key that it waits for`, async () => {
      const ask = open();
      const { store } = ask;
      if (!store.listen) return;
      const keys = [freshKey(), freshKey()];
      const entries = async (): Promise<number | undefined> => (await store.waiting?.(keys))?.flat().length;
      const holders = keys.map((key) => leaseOf(kind, key));
      for (const holder of holders) await ask.granted(holder, { ordered: true });
      const waiter = await ask.queued(kind, ...keys);
      if (store.waiting) assert.equal(await entries(), 1);
      await ask.release(holders[0]!);
      await ask.refused(leaseOf(kind, keys), waiter.terms);
      // The waiter now waits for the second key, so it keeps nobody from the first.
      const passing = leaseOf(kind, keys[0]!);
      await ask.granted(passing, { ordered: true });
      await ask.release(passing);
      if (store.waiting) assert.equal(await entries(), 1);
      await ask.release(holders[1]!);
      const both = leaseOf(kind, keys);
      await ask.granted(both, waiter.terms);
      if (store.waiting) assert.equal(await entries(), 0);
      await ask.release(both);
      for (const key of keys) {
        const later = leaseOf(kind, key);
        await ask.granted(later, { ordered: true });
        await ask.release(later);
      }
      await waiter.leave();
    });

    test(`tells the next waiter in the mode '${mode}' at once when one for several keys, whose turn it is, is refused at another key`, async () => {
      const ask = open();
      if (!ask.store.listen) return;
      const keys = [freshKey(), freshKey()];
      const holders = keys.map((each) => leaseOf(blocking, each));
      for (const holder of holders) await ask.granted(holder, { ordered: true });
      const both = await ask.queued(kind, ...keys);
      const next = await ask.queued(kind, keys[0]!);
      await ask.release(holders[0]!);
      await both.toldAtOnce();
      next.forget();
      await ask.refused(leaseOf(kind, keys), both.terms);
      await next.toldAtOnce();
      const taken = leaseOf(kind, keys[0]!);
      await ask.granted(taken, next.terms);
      for (const lease of [taken, holders[1]!]) await ask.release(lease);
      for (const waiter of [both, next]) await waiter.leave();
    });

    test(`tells the next waiter in the mode '${mode}' at once when a call takes over such a turn of one that gave up, and is refused`, async () => {
      const ask = open();
      if (!ask.store.listen) return;
      const keys = [freshKey(), freshKey()];
      const [key, other] = keys as [string, string];
      const after = ({ terms }: QueuedCaller, waited: number): Terms => ({
        ordered: true,
        position: { ...terms.position!, waited },
      });
      const holder = leaseOf(blocking, keys);
      await ask.granted(holder, { ordered: true });
      const [both, atOne, atOther] = [
        await ask.waiter(mode, key, other),
        await ask.waiter(mode, key),
        await ask.waiter(mode, other),
      ];
      await ask.refused(leaseOf(kind, keys), after(both, 20_000));
      await ask.refused(leaseOf(kind, key), after(atOne, 5_000));
      await ask.refused(leaseOf(kind, other), after(atOther, 15_000));
      await ask.release(holder);
      await both.toldAtOnce();
      atOne.forget();
      // The second call of the process came before the waiter at the one key, and after the waiter at the other.
      await ask.refused(leaseOf(kind, keys), after(both, 10_000));
      await atOne.toldAtOnce();
      for (const waiter of [both, atOne, atOther]) await waiter.leave();
    });

    test(`removes a waiter in the mode '${mode}' that leaves from the queues of all its keys`, async () => {
      const ask = open();
      if (!ask.store.listen) return;
      const keys = [freshKey(), freshKey()];
      for (const held of keys) {
        const holder = leaseOf(kind, held);
        await ask.granted(holder, { ordered: true });
        const waiter = await ask.queued(kind, ...keys);
        await waiter.leave();
        await ask.release(holder);
        const next = leaseOf(kind, keys, TTL);
        await ask.granted(next, { ordered: true });
        await ask.release(next);
      }
    });
  }
}
