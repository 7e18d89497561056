import { strict as assert } from 'node:assert';
import type { Lease } from '../../core/lease.js';
import type { LockMode } from '../../core/lock-mode.js';
import { type Contract, freshKey, kindOf, leaseOf, type StoreAsker, TTL, until } from './store-asker.js';

/** Milliseconds by which the ttl of one holder differs from that of the next. */
const APART_MS = 10_000;

/** The number of leases that want the place of one lease at the same time. */
const MANY = 20;

/** The contract of `LeaseExchange`, if the store has it. */
export function exchangeContract({ test, open, lapse, modes }: Contract, mode: LockMode): void {
  const kind = kindOf(mode);

  test('puts a lease in the place of another, with its token, slot and end', async () => {
    const ask = open();
    if (!ask.store.exchange) return;
    const keys = [freshKey(), freshKey()];
    const [first, second] = [leaseOf(kind, keys, TTL, 'alice'), leaseOf(kind, keys, TTL, 'bob')];
    const { token, slots } = await ask.granted(first);
    second.slots = slots;
    const before = await Promise.all(keys.map((key) => ask.read(key)));
    assert.equal(await ask.exchange(second, [first], { since: 1_700_000_000_000 }), true);
    for (const [index, key] of keys.entries()) {
      const state = await ask.read(key);
      const [holder, ...others] = state?.holders ?? [];
      const { remaining, ...rest } = holder!;
      const { remaining: left, ...former } = before[index]!.holders[0]!;
      assert.deepEqual(others, []);
      assert.deepEqual(rest, { ...former, id: second.id, owner: 'bob', since: 1_700_000_000_000 });
      assert.equal(rest.fencingToken, token);
      // The end may move by the time that has passed since the last request, and no further.
      assert.ok(remaining <= TTL && remaining > left - TTL / 2, `${remaining} of ${left} ms`);
    }
    assert.equal(await ask.extend(first), false);
    await ask.release(first);
    assert.equal(await ask.extend(second, 2 * TTL), true);
    assert.deepEqual(await ask.holders(keys[1]!), [second.id]);
    await ask.release(second);
    assert.deepEqual(await ask.holders(keys[0]!), []);
    assert.ok((await ask.granted(leaseOf(kind, keys))).token > token);
  });

  test('the lease that took the place of another excludes others, and its release wakes the first waiter', async () => {
    const ask = open();
    if (!ask.store.exchange) return;
    const key = freshKey();
    const [first, second] = [leaseOf(kind, key), leaseOf(kind, key)];
    second.slots = (await ask.granted(first)).slots;
    const other = kindOf(mode !== 'exclusive' && modes.includes('exclusive') ? 'exclusive' : mode, 1);
    const isQueued = ask.store.listen !== undefined && mode !== 'shared';
    const waiter = isQueued ? await ask.queued(other, key) : undefined;
    assert.equal(await ask.exchange(second, [first]), true);
    if (mode !== 'shared' || other.mode === 'exclusive')
      await ask.refused(leaseOf(other, key), waiter?.terms);
    await ask.release(second);
    await waiter?.toldAtOnce();
    await waiter?.leave();
  });

  test('puts no lease in the place of one that does not hold all its keys, and then changes nothing', async () => {
    const ask = open();
    if (!ask.store.exchange) return;
    const keys = [freshKey(), freshKey()];
    const [key, another] = keys as [string, string];
    const [lapsed, released] = [leaseOf(kind, freshKey(), lapse), leaseOf(kind, freshKey())];
    const half = leaseOf(kind, keys);
    for (const lease of [lapsed, released, half]) lease.slots = (await ask.granted(lease)).slots;
    await ask.release(released);
    await ask.store.forceRelease?.(another, [half.id]);
    await ask.lapsed(lapsed.keys[0]!, lapsed);
    for (const old of [leaseOf(kind, freshKey()), lapsed, released, half]) {
      const lease = leaseOf(kind, old.keys);
      assert.equal(await ask.exchange(lease, [old]), false);
      assert.equal(await ask.extend(lease), false);
      await ask.release(lease);
    }
    assert.deepEqual(await ask.holders(key), [half.id]);
    assert.deepEqual(await ask.holders(another), []);
  });

  test('gives the place of one of several leases, answers a repetition alike, and gives a place back', async () => {
    const ask = open();
    if (!ask.store.exchange) return;
    const key = freshKey();
    const [first, second, third] = [leaseOf(kind, key), leaseOf(kind, key), leaseOf(kind, key)];
    const { slots } = await ask.granted(first);
    for (const lease of [second, third]) lease.slots = slots;
    for (let time = 0; time < 2; time++) assert.equal(await ask.exchange(second, [first]), true);
    assert.equal(await ask.exchange(third, [first]), false);
    assert.equal(await ask.exchange(third, [leaseOf(kind, key), second, first]), true);
    assert.equal(await ask.exchange(first, [third]), true);
    assert.deepEqual(await ask.holders(key), [first.id]);
    assert.equal(await ask.extend(first), true);
  });

  test(`gives the place of a lease to one of ${MANY} simultaneous requests`, async () => {
    const ask = open();
    if (!ask.store.exchange) return;
    const keys = [freshKey(), freshKey()];
    const old = leaseOf(kind, keys);
    const { slots } = await ask.granted(old);
    const leases = Array.from({ length: MANY }, () => leaseOf(kind, keys));
    for (const lease of leases) lease.slots = slots;
    const answers = await Promise.all(leases.map((lease) => ask.exchange(lease, [old])));
    const winners = leases.filter((_, index) => answers[index]);
    assert.equal(winners.length, 1);
    for (const key of keys) assert.deepEqual(await ask.holders(key), [winners[0]!.id]);
  });

  test('gives no place away when the time limit of the request has passed (S16)', async () => {
    const ask = open();
    if (!ask.store.exchange) return;
    const key = freshKey();
    const [first, second] = [leaseOf(kind, key), leaseOf(kind, key)];
    second.slots = (await ask.granted(first)).slots;
    const answer = await ask.exchange(second, [first], { limit: -1_000 }).catch(() => false);
    assert.equal(answer, false);
    assert.deepEqual(await ask.holders(key), [first.id]);
  });

  test('gives no place away that `minHold` keeps after the release', async () => {
    const ask = open();
    if (!ask.store.exchange || mode === 'shared') return;
    const key = freshKey();
    const [first, second] = [leaseOf(kind, key), leaseOf(kind, key)];
    second.slots = (await ask.granted(first)).slots;
    first.acquired(performance.now(), TTL);
    await ask.release(first);
    assert.equal(await ask.exchange(second, [first]), false);
    assert.deepEqual(await ask.holders(key), [first.id]);
  });

  if (mode === 'exclusive') return;

  test('gives a place away beside other holders, whichever of them ends first, and changes none of them', async () => {
    const ask = open();
    if (!ask.store.exchange) return;
    for (const place of [0, 1, 2]) {
      const key = freshKey();
      const held = await heldInTurn(ask, mode, key);
      const before = await ask.read(key);
      const old = held[place]!;
      const lease = leaseOf(kind, key, TTL, 'bob');
      lease.slots = old.slots;
      assert.equal(await ask.exchange(lease, [old]), true);
      const ids = held.map(({ id }) => (id === old.id ? lease.id : id));
      assert.deepEqual(await ask.holders(key), ids);
      const tokens = new Map(
        before!.holders.map(({ id, fencingToken, slot }) => [id, { fencingToken, slot }]),
      );
      for (const { id, owner, fencingToken, slot } of (await ask.read(key))!.holders) {
        assert.deepEqual({ fencingToken, slot }, tokens.get(id === lease.id ? old.id : id));
        assert.equal(owner, id === lease.id ? 'bob' : 'me');
      }
      assert.equal(await ask.extend(lease, 3 * TTL), true);
      assert.equal((await ask.holders(key)).at(-1), lease.id);
      for (const each of [lease, ...held.filter((one) => one !== old)]) await ask.release(each);
      assert.deepEqual(await ask.holders(key), []);
    }
  });

  test('leaves the end of a lease that took the place of another as it was', async () => {
    const ask = open();
    if (!ask.store.exchange) return;
    const key = freshKey();
    const [long, short, lease] = [leaseOf(kind, key), leaseOf(kind, key, lapse), leaseOf(kind, key)];
    await ask.granted(long);
    lease.slots = (await ask.granted(short)).slots;
    if (!(await ask.exchange(lease, [short]))) return;
    await until(async () => !(await ask.holders(key)).includes(lease.id));
    assert.deepEqual(await ask.holders(key), [long.id]);
  });
}

/** Three holders of a key, the first to end first. */
async function heldInTurn(ask: StoreAsker, mode: LockMode, key: string): Promise<Lease[]> {
  const leases = [2, 0, 1].map((turn) => leaseOf(kindOf(mode), key, TTL + turn * APART_MS));
  for (const lease of leases) lease.slots = (await ask.granted(lease)).slots;
  return leases.toSorted((a, b) => a.ttl - b.ttl);
}
