import { strict as assert } from 'node:assert';
import type { LockMode } from '../../core/lock-mode.js';
import type { KeyWaiter, StarvationGuard, Store } from '../../core/ports.js';
import {
  inTurn,
  inTime,
  MARKED,
  type Contract,
  freshKey,
  kindOf,
  leaseOf,
  type StoreAsker,
  TTL,
  until,
  type QueuedCaller,
  type Terms,
} from './store-asker.js';

/** The contract of the queue, for a store that has one. */
export function queueContract({ test: contractTest, open, modes }: Contract): void {
  const test = inTurn(contractTest);
  const has = (...needed: LockMode[]): boolean => needed.every((mode) => modes.includes(mode));

  /** Makes a waiter that was refused and is in the queue. */
  function inQueue(ask: StoreAsker, mode: LockMode, key: string, count?: number): Promise<QueuedCaller> {
    return ask.queued(kindOf(mode, count), key);
  }

  for (const mode of modes) {
    const kind = kindOf(mode, 1);
    const blocking = kindOf(mode === 'exclusive' ? mode : has('exclusive') ? 'exclusive' : mode, 1);
    test(`tells waiters in the mode '${mode}' about a release in the order of their arrival`, async () => {
      const ask = open();
      if (!ask.store.listen) return;
      const key = freshKey();
      const holder = leaseOf(blocking, key);
      await ask.granted(holder, { ordered: true });
      const first = await inQueue(ask, mode, key, 1);
      const second = await inQueue(ask, mode, key, 1);
      await ask.release(holder);
      await first.toldAtOnce();
      const lease = leaseOf(kind, key);
      await ask.granted(lease, first.terms);
      if (mode !== 'shared') {
        assert.deepEqual(second.told.includes(0), false);
        await ask.release(lease);
      }
      await second.toldAtOnce();
      await ask.granted(leaseOf(kind, key), second.terms);
      for (const waiter of [first, second]) await waiter.leave();
    });
  }

  for (const mode of modes) {
    const blocking = kindOf(mode === 'shared' && has('exclusive') ? 'exclusive' : mode, 1);
    if (blocking.mode === 'shared') continue;
    test(`tells the first waiter in the mode '${mode}' about the release of a lock that only other nodes store`, async () => {
      const ask = open();
      if (!ask.store.listen || !ask.store.raise) return;
      const key = freshKey();
      const holder = leaseOf(blocking, key);
      await ask.granted(holder, { ordered: true });
      const waiter = await inQueue(ask, mode, key, 1);
      const elsewhere = leaseOf(kindOf(mode, 1), key);
      await ask.release(elsewhere);
      assert.equal(waiter.told.includes(0), false);
      await ask.release(elsewhere, 0, true);
      await waiter.toldAtOnce();
      assert.deepEqual(await ask.holders(key), [holder.id]);
      await ask.refused(leaseOf(kindOf(mode, 1), key), waiter.terms);
      waiter.forget();
      await ask.release(holder, 0, true);
      await waiter.toldAtOnce();
      await waiter.leave();
    });
  }

  for (const mode of modes) {
    const blocking = kindOf(mode === 'shared' && has('exclusive') ? 'exclusive' : mode, 1);
    if (blocking.mode === 'shared') continue;
    test(`lists waiters in the mode '${mode}' in their order, with their owners, until they leave or get the lock`, async () => {
      const ask = open();
      const { store } = ask;
      if (!store.listen || !store.waiting) return;
      const [key, other] = [freshKey(), freshKey()];
      const shown = async (): Promise<readonly (readonly KeyWaiter[])[]> =>
        (await store.waiting?.([other, key])) ?? [];
      assert.deepEqual(await shown(), [[], []]);
      const holder = leaseOf(blocking, key);
      await ask.granted(holder, { ordered: true });
      const before = Date.now();
      const first = await inQueue(ask, mode, key, 1);
      const second = await inQueue(ask, mode, key, 1);
      const [none, found] = await shown();
      assert.deepEqual(none, []);
      assert.deepEqual(
        found?.map(({ process, number, owner, mode: theirs }) => [process, number, owner, theirs]),
        [first, second].map(({ id: { process, number, owner } }) => [process, number, owner, mode]),
      );
      // The clock of the store may differ from the clock of this process, but not by as much as a ttl.
      const [one, another] = found!.map(({ since }) => since) as [number, number];
      assert.ok(Math.abs(one - before) < TTL && another > one, `${before}: ${one}, ${another}`);
      await second.leave();
      const numbers = async (): Promise<readonly number[] | undefined> =>
        (await shown())[1]?.map(({ number }) => number);
      assert.deepEqual(await numbers(), [first.id.number]);
      await ask.release(holder);
      await first.toldAtOnce();
      // A waiter is in the list only once, also during its turn.
      assert.deepEqual(await numbers(), [first.id.number]);
      await ask.granted(leaseOf(kindOf(mode, 1), key), first.terms);
      assert.deepEqual(await shown(), [[], []]);
      await first.leave();
    });
  }

  for (const mode of modes) {
    if (mode === 'shared') continue;
    const kind = kindOf(mode, 1);
    test(`lets no later caller pass waiters in the mode '${mode}'`, async () => {
      const ask = open();
      if (!ask.store.listen) return;
      const key = freshKey();
      const early = await ask.waiter(mode, key);
      const holder = leaseOf(kind, key);
      await ask.granted(holder, { ordered: true });
      const first = await inQueue(ask, mode, key, 1);
      const late = await ask.waiter(mode, key);
      await ask.release(holder);
      const { holder: inTheWay } = await ask.refused(leaseOf(kind, key), { ordered: true });
      assert.equal(inTheWay.owner, first.id.owner);
      assert.ok(inTheWay.remaining > 0);
      await ask.refused(leaseOf(kind, key), late.terms);
      // `early` came first, but was not refused and so is not in the queue. It still comes before the waiters there.
      const lease = leaseOf(kind, key);
      await ask.granted(lease, early.terms);
      await ask.release(lease);
      await ask.granted(leaseOf(kind, key), first.terms);
      for (const waiter of [early, first, late]) await waiter.leave();
    });

    test(`gives a later call no place of one of its process that gave up in the mode '${mode}'`, async () => {
      const ask = open();
      if (!ask.store.listen) return;
      const key = freshKey();
      const holder = leaseOf(kind, key);
      await ask.granted(holder, { ordered: true });
      const [mine, other] = [await ask.waiter(mode, key), await ask.waiter(mode, key)];
      const after = (waiter: QueuedCaller, waited: number): Terms => {
        const { position } = waiter.terms;
        return { ordered: true, position: { ...position!, waited } };
      };
      await ask.refused(leaseOf(kind, key), after(mine, 20_000));
      await ask.refused(leaseOf(kind, key), after(other, 10_000));
      await ask.release(holder);
      await mine.toldAtOnce();
      // The first call gives up now. The next call of its process takes over, and came later than the other process.
      await ask.refused(leaseOf(kind, key), after(mine, 1));
      await other.toldAtOnce();
      mine.forget();
      const lease = leaseOf(kind, key);
      await ask.granted(lease, after(other, 10_500));
      await ask.release(lease);
      await mine.toldAtOnce();
      await ask.granted(leaseOf(kind, key), after(mine, 500));
      for (const waiter of [mine, other]) await waiter.leave();
    });

    test(`passes the turn to the next waiter when a waiter in the mode '${mode}' leaves or does not take the lock`, async () => {
      const ask = open();
      if (!ask.store.listen) return;
      const key = freshKey();
      const holder = leaseOf(kind, key);
      await ask.granted(holder, { ordered: true });
      const [leaving, hanging, last] = [
        await inQueue(ask, mode, key, 1),
        await inQueue(ask, mode, key, 1),
        await inQueue(ask, mode, key, 1),
      ];
      await ask.release(holder);
      await leaving.toldAtOnce();
      await leaving.leave();
      await hanging.toldAtOnce();
      await until(async () => (await ask.acquire(leaseOf(kind, key), last.terms)).granted);
      for (const waiter of [hanging, last]) await waiter.leave();
    });
  }

  if (has('shared', 'exclusive')) readers();
  if (has('permits')) permits();
  for (const mode of modes) {
    if (mode === 'exclusive') continue;
    for (const waiting of modes) {
      if (waiting === mode) continue;
      heldBack(mode, waiting);
    }
  }

  function readers(): void {
    const [SHARED, EXCLUSIVE] = [kindOf('shared'), kindOf('exclusive')];

    test('lets no later reader pass a waiting writer, even while readers hold the lock', async () => {
      const ask = open();
      if (!ask.store.listen) return;
      const key = freshKey();
      const reader = leaseOf(SHARED, key);
      const early = await ask.waiter('shared', key);
      await ask.granted(reader, { ordered: true });
      const writer = await inQueue(ask, 'exclusive', key);
      await ask.store.holdBack?.(writer.id, writer.waited);
      await ask.refused(leaseOf(SHARED, key), { ordered: true });
      const late = await inQueue(ask, 'shared', key);
      // A reader that came before the writer joins the present readers.
      const joining = leaseOf(SHARED, key);
      await ask.granted(joining, early.terms);
      await ask.release(reader);
      assert.deepEqual(writer.told, []);
      await ask.release(joining);
      await writer.toldAtOnce();
      await ask.refused(leaseOf(SHARED, key), late.terms);
      const writing = leaseOf(EXCLUSIVE, key);
      await ask.granted(writing, writer.terms);
      await ask.store.letPass?.(writer.id);
      await ask.release(writing);
      await late.toldAtOnce();
      await ask.granted(leaseOf(SHARED, key), late.terms);
      for (const waiter of [early, writer, late]) await waiter.leave();
    });

    test('holds readers back only from those keys of a waiting writer that were held, and then until the wait ends', async () => {
      const ask = open();
      const { store } = ask;
      const marks = marksOf(store);
      if (!store.listen) return;
      await inTime(MARKED, async (begins) => {
        const [a, b] = [freshKey(), freshKey()];
        const [first, second] = [leaseOf(SHARED, a), leaseOf(SHARED, b)];
        await ask.granted(first, { ordered: true });
        const writer = await ask.queued(EXCLUSIVE, a, b);
        begins();
        await marks?.holdBack(writer.id, writer.waited);
        await ask.refused(leaseOf(SHARED, a), { ordered: true });
        // Nobody holds this key, so its readers are not in the way. The holder of the other key may read this one, too.
        await ask.granted(second, { ordered: true });
        await ask.granted(leaseOf(SHARED, b), { ordered: marks === undefined });
        if (!marks) return writer.leave();
        await ask.release(first);
        await ask.refused(leaseOf(EXCLUSIVE, [a, b]), writer.terms);
        await marks.holdBack(writer.id, writer.waited);
        // The writer found both keys held by now, one after the other.
        for (const key of [a, b]) await ask.refused(leaseOf(SHARED, key));
        await marks.letPass(writer.id);
        await writer.leave();
        for (const key of [a, b]) await ask.granted(leaseOf(SHARED, key), { ordered: true });
      });
    });

    test('tells all waiting readers in front of a waiting writer at once, but no reader behind the writer', async () => {
      const ask = open();
      if (!ask.store.listen) return;
      const key = freshKey();
      const holder = leaseOf(EXCLUSIVE, key);
      await ask.granted(holder, { ordered: true });
      const together: QueuedCaller[] = [];
      for (let count = 0; count < 4; count++) together.push(await inQueue(ask, 'shared', key));
      const writer = await inQueue(ask, 'exclusive', key);
      const behind = await inQueue(ask, 'shared', key);
      await ask.release(holder);
      for (const waiter of together) await waiter.toldAtOnce();
      const reading = together.map(() => leaseOf(SHARED, key));
      // The order does not matter: no reader excludes another.
      for (const at of [2, 0, 3, 1]) await ask.granted(reading[at]!, together[at]!.terms);
      await ask.refused(leaseOf(SHARED, key), behind.terms);
      assert.deepEqual([behind.told.includes(0), writer.told.includes(0)], [false, false]);
      for (const lease of reading) await ask.release(lease);
      await writer.toldAtOnce();
      await ask.granted(leaseOf(EXCLUSIVE, key), writer.terms);
      for (const waiter of [...together, writer, behind]) await waiter.leave();
    });

    test('lets a waiting reader join the present readers when the writer in front of it gives up', async () => {
      const ask = open();
      if (!ask.store.listen) return;
      const key = freshKey();
      await ask.granted(leaseOf(SHARED, key), { ordered: true });
      const writer = await inQueue(ask, 'exclusive', key);
      await ask.store.holdBack?.(writer.id, writer.waited);
      const late = await inQueue(ask, 'shared', key);
      await ask.store.letPass?.(writer.id);
      await writer.leave();
      await ask.granted(leaseOf(SHARED, key), late.terms);
      await late.leave();
    });
  }

  /**
   * Defines the tests of `holdBack`, which sets a mark: the store then refuses later callers in favour of the waiter,
   * even if another node keeps the queue of the key.
   */
  function heldBack(mode: LockMode, waiting: LockMode): void {
    const [kind, other] = [kindOf(mode, 9), kindOf(waiting, 9)];

    test(`after \`holdBack\` for a waiter in the mode '${waiting}', the store refuses later callers in the mode '${mode}' (S22)`, async () => {
      const ask = open();
      const marks = marksOf(ask.store);
      if (!marks) return;
      await inTime(MARKED, async (begins) => {
        const key = freshKey();
        const early = await ask.waiter(mode, key);
        const holder = leaseOf(kind, key);
        await ask.granted(holder);
        const marker = await ask.waiter(waiting, key);
        begins();
        await marks.holdBack(marker.id, marker.waited);
        const { holder: inTheWay } = await ask.refused(leaseOf(kind, key));
        assert.equal(inTheWay.owner, marker.id.owner);
        assert.ok(inTheWay.remaining > 0 && inTheWay.remaining <= 5_000, `${inTheWay.remaining} ms`);
        // A held lock stays held, and a repeated request confirms it.
        assert.equal(await ask.extend(holder), true);
        await ask.granted(holder);
        await ask.granted(leaseOf(kind, key), early.terms);
        const late = await ask.waiter(mode, key);
        await ask.refused(leaseOf(kind, key), late.terms);
        await late.leave();
        await marks.letPass(marker.id);
        await ask.granted(leaseOf(kind, key));
        for (const waiter of [early, marker]) await waiter.leave();
      });
    });

    test(`after \`letPass\` for an earlier waiter, \`holdBack\` for the next waiter in the mode '${waiting}' holds callers in the mode '${mode}' back`, async () => {
      const ask = open();
      const marks = marksOf(ask.store);
      if (!marks) return;
      await inTime(MARKED, async (begins) => {
        const key = freshKey();
        await ask.granted(leaseOf(kind, key));
        const [first, second] = [await ask.waiter(waiting, key), await ask.waiter(waiting, key)];
        begins();
        assert.equal(await marks.holdBack(first.id, first.waited), true);
        // Either answer is right: a store may keep both marks.
        const stands = await marks.holdBack(second.id, second.waited);
        await marks.letPass(first.id);
        if (!stands) assert.equal(await marks.holdBack(second.id, second.waited), true);
        const { holder } = await ask.refused(leaseOf(kind, key));
        assert.equal(holder.owner, second.id.owner);
        await marks.letPass(second.id);
        for (const waiter of [first, second]) await waiter.leave();
      });
    });

    if (waiting !== 'exclusive') return;

    test(`after \`holdBack\` for two waiters, the store refuses callers in the mode '${mode}' until \`letPass\` for both`, async () => {
      const ask = open();
      const marks = marksOf(ask.store);
      if (!marks) return;
      await inTime(MARKED, async (begins) => {
        const key = freshKey();
        const holder = leaseOf(kind, key);
        await ask.granted(holder);
        const [first, second] = [await ask.waiter(waiting, key), await ask.waiter(waiting, key)];
        begins();
        await marks.holdBack(first.id, first.waited);
        await marks.holdBack(second.id, second.waited);
        await marks.letPass(second.id);
        await ask.refused(leaseOf(kind, key));
        await ask.release(holder);
        // A mark is no lock: it does not exclude a mode that admits only one holder.
        const writing = leaseOf(other, key);
        await ask.granted(writing);
        await ask.release(writing);
        await ask.refused(leaseOf(kind, key));
        await marks.letPass(first.id);
        await ask.granted(leaseOf(kind, key));
        for (const waiter of [first, second]) await waiter.leave();
      });
    });

    test(`\`holdBack\` for a crashed waiter no longer holds callers in the mode '${mode}' back after a few seconds`, async () => {
      const ask = open();
      const marks = marksOf(ask.store);
      if (!marks) return;
      const key = freshKey();
      await ask.granted(leaseOf(kind, key));
      const marker = await ask.waiter(waiting, key);
      const began = performance.now();
      await marks.holdBack(marker.id, marker.waited);
      await until(async () => (await ask.acquire(leaseOf(kind, key))).granted);
      assert.ok(performance.now() - began > 1_000);
      await marker.leave();
    });
  }

  function permits(): void {
    test('when three permits become free together, the store tells exactly the first three waiters', async () => {
      const ask = open();
      if (!ask.store.listen) return;
      const key = freshKey();
      const kind = kindOf('permits', 3);
      const holders = [1, 2, 3].map(() => leaseOf(kind, key));
      for (const holder of holders) await ask.granted(holder, { ordered: true });
      const waiters: QueuedCaller[] = [];
      for (let count = 0; count < 4; count++) waiters.push(await inQueue(ask, 'permits', key));
      for (const holder of holders) await ask.release(holder);
      const [last] = waiters.splice(3) as [QueuedCaller];
      for (const waiter of waiters) {
        await waiter.toldAtOnce();
        await ask.granted(leaseOf(kind, key), waiter.terms);
      }
      assert.equal(last.told.includes(0), false);
      await ask.refused(leaseOf(kind, key), last.terms);
      for (const waiter of [...waiters, last]) await waiter.leave();
    });

    test('lets a later caller pass waiters for permits only while there are more free permits than waiters', async () => {
      const ask = open();
      if (!ask.store.listen) return;
      const key = freshKey();
      const kind = kindOf('permits', 3);
      const holders = [1, 2, 3].map(() => leaseOf(kind, key));
      for (const holder of holders) await ask.granted(holder, { ordered: true });
      const first = await inQueue(ask, 'permits', key);
      await ask.release(holders[0]!);
      await first.toldAtOnce();
      // One permit is free, and one caller waits for it.
      await ask.refused(leaseOf(kind, key), { ordered: true });
      await ask.release(holders[1]!);
      await ask.granted(leaseOf(kind, key), { ordered: true });
      await ask.refused(leaseOf(kind, key), { ordered: true });
      await ask.granted(leaseOf(kind, key), first.terms);
      await first.leave();
    });

    if (!has('exclusive')) return;

    test('lets no later caller for a permit pass a waiter for an exclusive lock, even if permits are free', async () => {
      const ask = open();
      if (!ask.store.listen) return;
      const key = freshKey();
      const kind = kindOf('permits', 3);
      const holder = leaseOf(kind, key);
      await ask.granted(holder, { ordered: true });
      const writer = await inQueue(ask, 'exclusive', key);
      await ask.store.holdBack?.(writer.id, writer.waited);
      const late = await inQueue(ask, 'permits', key);
      await ask.refused(leaseOf(kind, key), { ordered: true });
      await ask.release(holder);
      await writer.toldAtOnce();
      const writing = leaseOf(kindOf('exclusive'), key);
      await ask.granted(writing, writer.terms);
      await ask.store.letPass?.(writer.id);
      await ask.release(writing);
      await late.toldAtOnce();
      await ask.granted(leaseOf(kind, key), late.terms);
      for (const waiter of [writer, late]) await waiter.leave();
    });
  }
}

/** The methods for marks, if the store has them. */
function marksOf(store: Store): StarvationGuard | undefined {
  return store.holdBack && store.letPass ? (store as StarvationGuard) : undefined;
}
