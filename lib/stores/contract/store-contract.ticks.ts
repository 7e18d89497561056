import { strict as assert } from 'node:assert';
import { Lease } from '../../core/lease.js';
import type { AcquireReply } from '../../core/ports.js';
import type { Tick } from '../../core/tick.js';
import { type Contract, freshKey, inTime, kindOf, leaseOf, TTL, until } from './store-asker.js';

const NINE: Tick = { schedule: 'daily', at: Date.UTC(2026, 0, 1, 9), life: TTL, from: 'acquisition' };
const TEN: Tick = { ...NINE, at: Date.UTC(2026, 0, 1, 10) };

function leaseFor(tick: Tick, key: string, owner = 'me'): Lease {
  return new Lease([key], owner, TTL, tick);
}

/** The contract of the option `oncePerTick`: a store remembers the last tick of a schedule that has run. */
export function ticksContract({ test, open, lapse }: Contract): void {
  test('refuses a tick that has run, and every earlier tick, even if the lock is free, and names the process that ran the tick', async () => {
    const ask = open();
    const key = freshKey();
    const runs = leaseFor(TEN, key, 'alice');
    await ask.granted(runs);
    runs.acquired(performance.now(), 0);
    await ask.release(runs);
    for (const tick of [TEN, NINE]) {
      const { ran, holder } = await ask.refused(leaseFor(tick, key));
      assert.deepEqual([ran, holder.owner], [true, 'alice']);
      assert.ok(holder.remaining > TTL / 2 && holder.remaining <= TTL, `${holder.remaining} ms`);
    }
    const free = leaseOf(kindOf('exclusive'), key);
    await ask.granted(free);
    await ask.release(free);
  });

  test('grants a later tick after a tick has run, and the same tick of another schedule or another key', async () => {
    const ask = open();
    const key = freshKey();
    const runs = leaseFor(NINE, key);
    await ask.granted(runs);
    runs.acquired(performance.now(), 0);
    await ask.release(runs);
    for (const lease of [
      leaseFor({ ...NINE, schedule: 'another' }, key),
      leaseFor(NINE, freshKey()),
      leaseFor(TEN, key),
    ]) {
      await ask.granted(lease);
      await ask.release(lease);
    }
  });

  test('records a tick when its lease is released, even if that lease has expired and another lease holds the key', async () => {
    const ask = open();
    const key = freshKey();
    const runs = new Lease([key], 'me', lapse, NINE);
    await ask.granted(runs);
    runs.acquired(performance.now(), 0);
    await ask.lapsed(key, runs);
    const next = leaseOf(kindOf('exclusive'), key);
    await ask.granted(next);
    await ask.release(runs);
    assert.deepEqual(await ask.holders(key), [next.id]);
    assert.equal((await ask.refused(leaseFor(NINE, key))).ran, true);
  });

  test('grants a tick to no other caller while the release of its lease is under way, and to one caller if it has not run', async () => {
    const ask = open();
    for (let round = 0; round < 5; round++) {
      const key = freshKey();
      const leases = Array.from({ length: 20 }, () => leaseFor(NINE, key));
      const asked = await ask.acquireAll(leases, false);
      const runs = leases.filter((_, index) => (asked[index] as AcquireReply).granted);
      assert.equal(runs.length, 1, `${runs.length} callers run the tick`);
      const [run] = runs as [Lease];
      run.acquired(performance.now(), 0);
      const others = Array.from({ length: 20 }, () => ask.refused(leaseFor(NINE, key)));
      const released = ask.release(run);
      others.push(...Array.from({ length: 20 }, () => ask.refused(leaseFor(NINE, key))));
      await Promise.all([released, ...others]);
      assert.equal((await ask.refused(leaseFor(NINE, key))).ran, true);
    }
  });

  test('does not record a tick when its lease was refused, or was released before it counted as acquired', async () => {
    const ask = open();
    const key = freshKey();
    const givenUp = leaseFor(NINE, key);
    await ask.granted(givenUp);
    const refused = leaseFor(NINE, key);
    assert.equal((await ask.refused(refused)).ran, undefined);
    for (const lease of [givenUp, refused]) await ask.release(lease);
    await ask.granted(leaseFor(NINE, key));
  });

  test('forgets a tick when its time has passed, and keeps the last tick when an earlier tick is recorded again', async () => {
    const ask = open();
    const key = freshKey();
    const [early, late] = [leaseFor(NINE, key), leaseFor(TEN, key)];
    for (const lease of [early, late]) {
      await ask.granted(lease);
      lease.acquired(performance.now(), 0);
      await ask.release(lease);
    }
    await ask.release(early);
    assert.equal((await ask.refused(leaseFor(TEN, key))).ran, true);

    const forgotten = await inTime(lapse, async (begins) => {
      const ticked = freshKey();
      const short = leaseFor({ ...NINE, schedule: 'short', life: lapse }, ticked);
      begins();
      await ask.granted(short);
      short.acquired(performance.now(), 0);
      await ask.release(short);
      const { holder } = await ask.refused(leaseFor({ ...NINE, schedule: 'short' }, ticked));
      assert.ok(holder.remaining <= lapse);
      return ticked;
    });
    // A store may remember the tick a little longer.
    await until(async () => (await ask.acquire(leaseFor({ ...NINE, schedule: 'short' }, forgotten))).granted);
  });
}
