import { strict as assert } from 'node:assert';
import type { Lease } from '../../core/lease.js';
import { type Contract, freshKey, inTime, kindOf, leaseOf, type StoreAsker, TTL } from './store-asker.js';

function permits(count: number, keys: string | readonly string[], ttl = TTL): Lease {
  return leaseOf(kindOf('permits', count), keys, ttl);
}

/** Asks for the next free slots, counted from these slots. */
function from(...slots: number[]): { readonly wish: { slots: number[]; exactly: false } } {
  return { wish: { slots, exactly: false } };
}

function exactly(...slots: number[]): { readonly wish: { slots: number[]; exactly: true } } {
  return { wish: { slots, exactly: true } };
}

/** The slot of each holder, by its id. */
async function slotsOf(ask: StoreAsker, key: string): Promise<Record<string, number | undefined>> {
  const holders = (await ask.read(key))?.holders ?? [];
  return Object.fromEntries(holders.map(({ id, slot }) => [id, slot]));
}

/** The contract of permits. */
export function permitsContract({ test, open, modes, lapse, mostPermits }: Contract): void {
  for (const count of [1, 2, 5, mostPermits]) {
    test(`admits at most ${count} holders at a time, each with a slot of its own (S20)`, async () => {
      const ask = open();
      const key = freshKey();
      // A slow server takes longer than a minute for a thousand of them.
      const leases = Array.from({ length: count }, () => permits(count, key, 10 * TTL));
      const slots: (number | undefined)[] = [];
      for (const lease of leases) slots.push((await ask.granted(lease)).slots?.[0]);
      assert.deepEqual(
        slots.toSorted((a, b) => a! - b!),
        Array.from({ length: count }, (_, slot) => slot),
      );
      await ask.refused(permits(count, key));
      const freed = Math.floor(count / 2);
      await ask.release(leases[freed]!);
      assert.deepEqual((await ask.granted(permits(count, key))).slots, [slots[freed]]);
      await ask.refused(permits(count, key));
    });
  }

  test('grants the first free slot at or after the requested slot, or otherwise the lowest free slot', async () => {
    const ask = open();
    const key = freshKey();
    const slots: unknown[] = [];
    for (const wished of [3, 3, 3, undefined, 1])
      slots.push((await ask.granted(permits(5, key), wished === undefined ? {} : from(wished))).slots);
    assert.deepEqual(slots, [[3], [4], [0], [1], [2]]);
    await ask.refused(permits(5, key), from(2));
  });

  test('grants a permit for several keys with one slot of each key and one token for all keys', async () => {
    const ask = open();
    const [a, b] = [freshKey(), freshKey()];
    await ask.granted(permits(2, a));
    const lease = permits(2, [a, b]);
    const { token, slots } = await ask.granted(lease, from(0, 0));
    assert.deepEqual(slots, [1, 0]);
    for (const key of [a, b]) {
      const holders = (await ask.read(key))!.holders.filter(({ id }) => id === lease.id);
      assert.equal(holders[0]?.fencingToken, token);
    }
    // All permits of one key are held, so the request takes no slot of the other key.
    await ask.refused(permits(2, [a, b]));
    assert.equal((await ask.holders(b)).length, 1);
    await ask.release(lease);
    assert.equal((await ask.holders(b)).length, 0);
  });

  test('grants exactly the requested slot, or refuses and names the holder of that slot', async () => {
    const ask = open();
    const key = freshKey();
    const [first, second] = [permits(3, key, TTL / 2), permits(3, key)];
    assert.deepEqual((await ask.granted(first)).slots, [0]);
    assert.deepEqual((await ask.granted(second, exactly(2))).slots, [2]);
    const { holder } = await ask.refused(permits(3, key), exactly(2));
    assert.equal(holder.id, second.id);
    assert.ok(holder.remaining > TTL / 2);
  });

  test('when a lease asks for exactly one new slot, the store frees its old slot, even if it refuses the request', async () => {
    const ask = open();
    const key = freshKey();
    const [mover, other] = [permits(3, key), permits(3, key)];
    const { token } = await ask.granted(mover);
    const again = await ask.granted(mover, exactly(0));
    assert.deepEqual([again.token, again.slots], [token, [0]]);
    assert.deepEqual((await ask.granted(mover, exactly(1))).slots, [1]);
    assert.deepEqual(await slotsOf(ask, key), { [mover.id]: 1 });
    await ask.granted(other);
    assert.equal((await ask.refused(mover, exactly(0))).holder.id, other.id);
    assert.deepEqual(await slotsOf(ask, key), { [other.id]: 0 });
    assert.deepEqual((await ask.granted(mover, exactly(2))).slots, [2]);
  });

  test('extends a lease only in the slot that the request names, and frees any other slot of the lease', async () => {
    const ask = open();
    const key = freshKey();
    const lease = permits(3, key);
    const { token } = await ask.granted(lease, from(1));
    lease.slots = [1];
    assert.equal(await ask.extend(lease), true);
    lease.slots = [2];
    if (ask.store.raise) assert.equal(await ask.raise(lease, token + 1), false);
    assert.equal(await ask.extend(lease), false);
    assert.deepEqual(await slotsOf(ask, key), {});
    assert.deepEqual((await ask.granted(permits(3, key), exactly(1))).slots, [1]);
  });

  test('gives increasing tokens in each slot, whatever the tokens of other slots are', async () => {
    const ask = open();
    const key = freshKey();
    const staying = permits(3, key);
    const first = await ask.granted(staying, exactly(2));
    const rows = new Map<number, number>([[2, first.token]]);
    for (let round = 0; round < 12; round++) {
      const lease = permits(3, key);
      const { token, slots } = await ask.granted(lease, from(round % 2));
      const [slot] = slots as [number];
      assert.ok(token > (rows.get(slot) ?? 0), `slot ${slot}: ${token}`);
      rows.set(slot, token);
      if (round % 3 === 0 && ask.store.raise) {
        assert.equal(await ask.raise(lease, token + 2_000), true);
        rows.set(slot, token + 2_000);
      }
      await ask.release(lease);
    }
    assert.equal((await ask.read(key))?.holders[0]?.fencingToken, first.token);
    // The tokens of other slots have grown meanwhile, which does not affect this slot.
    if (ask.store.raise) assert.equal(await ask.raise(staying, first.token + 1), true);
  });

  test('grants the slot of an expired holder to a new lease, while the other holders keep their slots', async () => {
    const ask = open();
    const { key, staying, lapsing, token, slots } = await inTime(lapse, async (begins) => {
      const full = freshKey();
      const [long, short] = [permits(2, full), permits(2, full, lapse)];
      await ask.granted(long);
      begins();
      const grant = await ask.granted(short);
      const refusal = await ask.refused(permits(2, full));
      assert.equal(refusal.holder.id, short.id);
      return { key: full, staying: long, lapsing: short, ...grant };
    });
    await ask.lapsed(key, lapsing);
    await ask.extend(staying);
    const next = permits(2, key);
    const granted = await ask.granted(next);
    assert.deepEqual(granted.slots, slots);
    assert.ok(granted.token > token);
    await ask.release(lapsing);
    assert.deepEqual((await ask.holders(key)).toSorted(), [staying.id, next.id].toSorted());
    await ask.refused(permits(2, key));
  });

  test('when all permits are taken, the refusal names the holders whose permits expire first', async () => {
    const ask = open();
    const key = freshKey();
    const holders = Array.from({ length: 12 }, (_, index) => permits(12, key, TTL * (12 - index)));
    for (const holder of holders) await ask.granted(holder);
    const { holder, others } = await ask.refused(permits(12, key));
    const first = holders.toReversed().map(({ id }) => id);
    assert.equal(holder.id, first[0]);
    assert.ok(holder.remaining <= TTL);
    const named = others ?? [];
    assert.ok(named.length <= 9);
    assert.deepEqual(
      named.map(({ id }) => id),
      first.slice(1, 1 + named.length),
    );
    for (const other of named) assert.deepEqual([other.mode, typeof other.slot], ['permits', 'number']);
  });

  test('when processes ask with different numbers of permits, the larger number applies', async () => {
    const ask = open();
    const key = freshKey();
    const old = [1, 2].map(() => permits(2, key));
    for (const lease of old) await ask.granted(lease);
    await ask.refused(permits(2, key));
    assert.equal((await ask.read(key))?.permits, 2);
    assert.deepEqual((await ask.granted(permits(4, key))).slots, [2]);
    assert.equal((await ask.read(key))?.permits, 4);
    await ask.refused(permits(2, key));
    assert.deepEqual((await ask.granted(permits(4, key))).slots, [3]);
    await ask.refused(permits(4, key));
    await ask.release(old[1]!);
    // A request with the smaller number gets a slot below that number.
    assert.deepEqual((await ask.granted(permits(2, key), from(1))).slots, [1]);
  });

  test('a refusal contains the largest number of permits that a holder asked for, whatever slots the holders have', async () => {
    const ask = open();
    const key = freshKey();
    const seen = async (count: number): Promise<number | undefined> =>
      (await ask.refused(permits(count, key))).permits;
    await ask.granted(permits(7, key));
    // First there is one holder, and then there are two. Their slots do not show how many permits they asked for.
    assert.equal(await seen(1), 7);
    await ask.granted(permits(2, key));
    assert.equal(await seen(2), 7);
  });

  if (!modes.includes('exclusive')) return;

  test('gives larger tokens to an exclusive lock after permits, and to permits after an exclusive lock', async () => {
    const ask = open();
    const key = freshKey();
    let last = 0;
    for (let phase = 0; phase < 3; phase++) {
      const leases = [1, 2].map(() => permits(2, key));
      const tokens: number[] = [];
      for (const [slot, lease] of leases.entries()) tokens.push((await ask.granted(lease, from(slot))).token);
      assert.ok(tokens.every((token) => token > last));
      for (const lease of leases) await ask.release(lease);
      const writer = leaseOf(kindOf('exclusive'), key);
      last = (await ask.granted(writer)).token;
      assert.ok(tokens.every((token) => token < last));
      // The next tokens must also be larger than a token that is far ahead of the clock.
      if (ask.store.raise && (await ask.raise(writer, last + 100_000))) last += 100_000;
      await ask.release(writer);
    }
  });
}
