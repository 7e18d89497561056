import { strict as assert } from 'node:assert';
import { tokenAt } from '../../core/fencing-token.js';
import { Lease } from '../../core/lease.js';
import type { LockMode } from '../../core/lock-mode.js';
import { type Contract, freshKey, kindOf, leaseOf, type Terms, TTL } from './store-asker.js';

/** Milliseconds by which tokens differ from the clock of the store. */
const APART_MS = 20_000;

/** The contract of requests that heal (S26), which only a store that is one of several nodes gets. */
export function healingContract({ test, open, lapse, modes }: Contract, mode: LockMode): void {
  const kind = kindOf(mode);
  const slots = mode === 'permits' ? [1] : undefined;
  const heals = (proposal: number, keyCount = 1): Terms => ({
    heals: true,
    proposal,
    ...(slots ? { wish: { slots: Array.from({ length: keyCount }, () => 1), exactly: true } } : {}),
  });

  test('stores the lease of a lock that heals with its token and slots, or after a larger token (S26)', async () => {
    const ask = open();
    if (!ask.store.raise) return;
    const [key, another] = [freshKey(), freshKey()];
    const token = tokenAt(Date.now() - APART_MS);
    const lease = leaseOf(kind, key);
    assert.deepEqual((await ask.granted(lease, heals(token))).slots, slots);
    assert.equal((await ask.read(key))?.holders[0]?.fencingToken, token);
    lease.slots = slots;
    assert.equal(await ask.extend(lease), true);
    const ahead = leaseOf(kind, another);
    const largest = (await ask.granted(ahead, { proposal: tokenAt(Date.now() + APART_MS) })).token;
    await ask.release(ahead);
    const healed = leaseOf(kind, another);
    await ask.granted(healed, heals(token));
    await ask.release(healed);
    assert.ok((await ask.granted(leaseOf(kind, another))).token > largest);
  });

  test('stores the lease of a lock that heals again after its end, but not after its release (S26)', async () => {
    const ask = open();
    if (!ask.store.raise) return;
    const [key, beside] = [freshKey(), freshKey()];
    const other = leaseOf(kind, beside);
    if (mode !== 'exclusive') await ask.granted(other);
    const leases = [leaseOf(kind, key, lapse), leaseOf(kind, beside, lapse)];
    const tokens: number[] = [];
    for (const lease of leases) tokens.push((await ask.granted(lease, heals(tokenAt(Date.now())))).token);
    for (const [index, lease] of leases.entries()) {
      const [at] = lease.keys as [string];
      await ask.lapsed(at, lease);
      lease.ttl = TTL;
      await ask.granted(lease, heals(tokens[index]!));
      assert.ok((await ask.holders(at)).includes(lease.id));
      lease.slots = slots;
      assert.equal(await ask.extend(lease), true);
      await ask.release(lease);
      assert.ok(!(await ask.holders(at)).includes(lease.id));
    }
    await ask.notGranted(leases[0]!, heals(tokens[0]!));
    assert.deepEqual(await ask.holders(key), []);
    if (mode !== 'exclusive') assert.deepEqual(await ask.holders(beside), [other.id]);
  });

  test('does not heal a lock on a node where another lease excludes it from one of its keys (S26)', async () => {
    const ask = open();
    if (!ask.store.raise) return;
    const [free, held] = [freshKey(), freshKey()];
    const excluding = modes.includes('exclusive') ? kindOf('exclusive') : kind;
    const holder = leaseOf(excluding, held);
    await ask.granted(holder, mode === 'permits' && excluding === kind ? heals(0) : {});
    if (mode === 'shared' && excluding === kind) return;
    await ask.refused(leaseOf(kind, [free, held]), heals(tokenAt(Date.now()), 2));
    assert.deepEqual([await ask.holders(free), await ask.holders(held)], [[], [holder.id]]);
  });

  test('heals a lock past the queue and the marks of waiters (S26)', async () => {
    const ask = open();
    if (!ask.store.raise || !ask.store.holdBack || !modes.includes('exclusive')) return;
    const key = freshKey();
    const holder = leaseOf(kind, key);
    await ask.granted(holder);
    const waiter = await ask.queued(kindOf('exclusive'), key);
    assert.equal(await ask.store.holdBack(waiter.id, waiter.waited), true);
    const lease = leaseOf(kind, key);
    if (mode === 'exclusive') await ask.release(holder);
    else await ask.refused(lease);
    await ask.granted(lease, heals(tokenAt(Date.now())));
    await waiter.leave();
  });

  if (mode === 'shared')
    test('gives a reader that heals beside other readers its own larger token, which later readers get, too (S26)', async () => {
      const ask = open();
      if (!ask.store.raise) return;
      // The lease that heals ends before the other one, and after it.
      for (const ttl of [TTL / 2, 2 * TTL]) {
        const key = freshKey();
        const [other, healed, later] = [leaseOf(kind, key), leaseOf(kind, key, ttl), leaseOf(kind, key)];
        const { token } = await ask.granted(other);
        const larger = token + 1_000;
        await ask.granted(healed, heals(larger));
        const holders = (await ask.read(key))?.holders ?? [];
        const tokens = new Map(holders.map(({ id, fencingToken }) => [id, fencingToken]));
        assert.deepEqual([tokens.get(other.id), tokens.get(healed.id)], [token, larger]);
        await ask.release(healed);
        assert.equal((await ask.granted(later)).token, larger);
        await ask.release(other);
        await ask.release(later);
        assert.ok((await ask.granted(leaseOf(kind, key))).token > larger);
      }
    });

  if (mode !== 'exclusive') return;

  test('heals the lock of a tick that has run on this node (S26)', async () => {
    const ask = open();
    if (!ask.store.raise) return;
    const key = freshKey();
    const tick = { schedule: 'daily', at: Date.UTC(2026, 0, 1, 9), life: TTL, from: 'acquisition' } as const;
    const ran = new Lease([key], 'me', TTL, tick);
    await ask.granted(ran);
    ran.acquired(performance.now(), 0);
    await ask.release(ran);
    await ask.granted(new Lease([key], 'me', TTL, tick), heals(tokenAt(Date.now())));
  });
}
