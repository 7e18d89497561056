import { strict as assert } from 'node:assert';
import { checkStore } from '../../core/check-store.js';
import { canHoldTogether, type LockMode, MOST_PERMITS } from '../../core/lock-mode.js';
import { tokenAt } from '../../core/fencing-token.js';
import type { Lease } from '../../core/lease.js';
import type { Store } from '../../core/ports.js';
import {
  type Contract,
  type ContractRunner,
  freshKey,
  inTime,
  kindOf,
  leaseOf,
  StoreAsker,
  TTL,
  until,
} from './store-asker.js';
import { exchangeContract } from './store-contract.exchange.js';
import { healingContract } from './store-contract.healing.js';
import { keysContract } from './store-contract.keys.js';
import { permitsContract } from './store-contract.permits.js';
import { queueContract } from './store-contract.queue.js';
import { racesContract } from './store-contract.races.js';
import { sharedContract } from './store-contract.shared.js';
import { ticksContract } from './store-contract.ticks.js';
import { turnsContract } from './store-contract.turns.js';

/** The store to test. */
export interface StoreUnderTest {
  /** The modes that the store can keep; the tests use these modes. */
  readonly modes: readonly LockMode[];

  /** The connected store; each test asks for it. The caller opens it before the tests and closes it after them. */
  readonly store: () => Store;

  /**
   * The shortest ttl that the store can keep, in milliseconds. Tests that wait for the end of a lock use this ttl. It
   * must be so long that even a busy machine can make another request before the end.
   * @defaultValue 400
   */
  readonly shortestTtl?: number;

  /**
   * The number of permits that the tests take at a time; give fewer for a slow store.
   * @defaultValue 1000
   */
  readonly mostPermits?: number;
}

/**
 * Time limit of a test in milliseconds. The default limits of some runners are too short to wait for the end of a lock.
 */
const TEST_LIMIT_MS = 120_000;

/**
 * Defines tests for all guarantees of a store. These are the guarantees of `LockStore` in each of its modes, and of
 * `WaitQueue`, `StarvationGuard`, `QuorumStore` and `LeaseExchange` if the store has them. The store must have `LockDirectory`, which
 * the tests use to read held locks. The tests lock keys that begin with `{contract}`, and assume that nothing else
 * locks such keys.
 *
 * @param runner - the functions of Jest, Vitest or `node:test`
 * @param name - the name of the store in the tests
 *
 * @example
 * ```ts
 * import { describe, test } from 'node:test';
 * import { type Store, storeContract } from 'nestjs-redlock/store';
 *
 * declare const store: Store;
 *
 * storeContract({ describe, test }, 'my store', { modes: ['exclusive'], store: () => store });
 * ```
 */
export function storeContract(
  runner: ContractRunner,
  name: string,
  { modes, store, shortestTtl = 400, mostPermits = MOST_PERMITS }: StoreUnderTest,
): void {
  const { describe } = runner;
  const test = (title: string, body: () => Promise<void>): unknown =>
    runner.test(title, () => body(), TEST_LIMIT_MS + 20 * shortestTtl);
  const contract: Contract = {
    ...{ test, modes, lapse: shortestTtl, mostPermits },
    open: () => new StoreAsker(store()),
  };
  describe(`the contract of a store: ${name}`, () => {
    test('the store has all methods of its interfaces, and supports exactly the given modes', async () => {
      checkStore(store(), 'the store');
      assert.deepEqual(store().modes.toSorted(), modes.toSorted());
      const { read } = store();
      assert.ok(read, 'the contract reads held locks: the store must have `read`, `scan` and `forceRelease`');
    });
    for (const mode of modes) {
      describe(`in the mode '${mode}'`, () => {
        modeContract(contract, mode);
        healingContract(contract, mode);
        exchangeContract(contract, mode);
      });
    }
    if (modes.includes('exclusive')) describe('ticks', () => ticksContract(contract));
    describe('between modes', () => betweenModes(contract));
    describe('simultaneous requests', () => racesContract(contract));
    describe('keys', () => keysContract(contract));
    if (modes.includes('shared')) describe('readers', () => sharedContract(contract));
    if (modes.includes('permits')) describe('permits', () => permitsContract(contract));
    describe('queue', () => {
      queueContract(contract);
      turnsContract(contract);
    });
  });
}

/** Ends of keys: the longest keys, and keys that some database confuses or does not take. */
const UNUSUAL_KEYS: readonly (readonly string[])[] = [
  ['x'.repeat(1_980)],
  ['\u{1F511}'.repeat(495)],
  ...[
    'a',
    'A',
    '\u00e0',
    'a\u0300',
    'a ',
    ' a',
    'a\t',
    'a\n',
    'a\0',
    'a\0b',
    "a'",
    'a"',
    'a\\',
    'a%',
    'a_',
    'a*',
    'a?',
    'a[a]',
  ].map((key) => [key]),
];

function many(count: number): string[] {
  return Array.from({ length: count }, (_, index) => `${count}:${String(index).padStart(3, '0')}`);
}

/** Milliseconds by which a test makes tokens run ahead of the clock of the store. */
const AHEAD_MS = 20_000;

/** The ways in which a held lease ends. */
const ENDS: readonly (readonly [string, (ask: StoreAsker, lease: Lease) => Promise<unknown>])[] = [
  ['was released', (ask, lease) => ask.release(lease)],
  ['has expired', (ask, lease) => ask.lapsed(lease.keys[0]!, lease)],
  [
    'was released by force',
    async (ask, { keys, id }) => {
      for (const key of keys) assert.deepEqual(await ask.store.forceRelease?.(key, [id]), [id]);
    },
  ],
];

/** The contract of each mode. */
function modeContract({ test, open, modes, lapse }: Contract, mode: LockMode): void {
  const kind = kindOf(mode);
  const hasMany = mode !== 'exclusive';
  const hasExclusive = modes.includes('exclusive');
  /** A kind of lock that excludes a lease of the mode. */
  const other = kindOf(hasMany && hasExclusive ? 'exclusive' : mode, 1);

  test('`read` returns the holder of a key with its start, remaining time and token', async () => {
    const ask = open();
    const key = freshKey();
    const lease = leaseOf(kind, key, TTL, 'alice');
    const since = Date.now() - 5;
    const { token, slots } = await ask.granted(lease, { since });
    assert.ok(Number.isSafeInteger(token) && token > 0);
    assert.deepEqual(slots, mode === 'permits' ? [0] : undefined);
    const state = await ask.read(key);
    const [holder, ...others] = state?.holders ?? [];
    assert.deepEqual([state?.mode, state?.permits, others], [mode, mode === 'permits' ? 3 : undefined, []]);
    const { remaining, ...rest } = holder!;
    const slot = mode === 'permits' ? { slot: 0 } : {};
    assert.deepEqual(rest, { id: lease.id, owner: 'alice', since, fencingToken: token, mode, ...slot });
    assert.ok(remaining > TTL / 2 && remaining <= TTL, `${remaining} ms`);
  });

  test('stores every lock whose keys `refuses` accepts, and keeps keys apart that differ in one character', async () => {
    const ask = open();
    const begin = freshKey();
    const leases: Lease[] = [];
    for (const keys of [...UNUSUAL_KEYS, many(60), many(200)].map((each) =>
      each.map((key) => `${begin}${key}`),
    )) {
      const reason = ask.store.refuses?.(keys, mode);
      if (reason === undefined) leases.push(leaseOf(kind, keys));
      else assert.ok(typeof reason === 'string' && reason !== '', `the reason is ${String(reason)}`);
    }
    for (const lease of leases) await ask.granted(lease);
    for (const { id, keys } of leases) assert.deepEqual(await ask.holders(keys[0]!), [id]);
    for (const lease of leases) await ask.release(lease);
    for (const { keys } of leases) assert.deepEqual(await ask.holders(keys.at(-1)!), []);
  });

  test("counts a ttl from the time of the store, whatever the caller's clock shows", async () => {
    const ask = open();
    for (const error of [-3_600_000, 3_600_000]) {
      const [key, lapsing] = [freshKey(), freshKey()];
      const since = Date.now() + error;
      const lease = leaseOf(kind, key);
      const { slots } = await ask.granted(lease, { since });
      const short = leaseOf(kind, lapsing, lapse);
      await ask.granted(short, { since });
      lease.slots = slots;
      assert.equal(await ask.extend(lease), true);
      const [holder] = (await ask.read(key))?.holders ?? [];
      assert.equal(holder?.since, since);
      assert.ok(holder.remaining > TTL / 2 && holder.remaining <= TTL, `${holder.remaining} ms`);
      await ask.lapsed(lapsing, short);
      await ask.granted(leaseOf(other, lapsing));
    }
  });

  test('stores nothing when the time limit of the request has passed (S16)', async () => {
    const ask = open();
    const [key, another] = [freshKey(), freshKey()];
    // A store may learn the time of its server from its first answer.
    await ask.granted(leaseOf(kind, another));
    for (const limit of [-10_000, -1_000]) {
      const late = leaseOf(kind, key);
      await ask.notGranted(late, { limit });
      assert.deepEqual(await ask.holders(key), []);
      await ask.release(late);
    }
    await ask.granted(leaseOf(kind, key));
  });

  test('answers a repeated request with the same grant, and stores the lease only once', async () => {
    const ask = open();
    const keys = [freshKey(), freshKey()];
    const lease = leaseOf(kind, keys);
    const granted = await ask.granted(lease);
    assert.deepEqual(await ask.acquire(lease, { proposal: granted.token + 1_000 }), granted);
    for (const key of keys) assert.deepEqual(await ask.holders(key), [lease.id]);
  });

  test('does not grant the last released lease of a key a second time (S16)', async () => {
    const ask = open();
    const key = freshKey();
    const lease = leaseOf(kind, key);
    await ask.granted(lease);
    await ask.release(lease);
    await ask.notGranted(lease);
    assert.deepEqual(await ask.holders(key), []);
  });

  test('undoes an acquisition that is still under way when its lease is released (S6)', async () => {
    const ask = open();
    const key = freshKey();
    const lease = leaseOf(kind, key);
    const asked = ask.acquire(lease).catch(() => undefined);
    // Send the release in the next turn of the event loop: a store may combine the requests of one turn.
    await new Promise((resolve) => setImmediate(resolve));
    lease.ended = true;
    await ask.release(lease);
    await asked;
    assert.deepEqual(await ask.holders(key), []);
  });

  test('a key that is new, released or expired has no holder', async () => {
    const ask = open();
    const [key, released] = [freshKey(), freshKey()];
    assert.equal(await ask.read(key), undefined);
    const lease = leaseOf(kind, released);
    await ask.granted(lease);
    await ask.release(lease);
    assert.equal(await ask.read(released), undefined);
    const lapsed = leaseOf(kind, key, lapse);
    await ask.granted(lapsed);
    await ask.lapsed(key, lapsed);
    await ask.granted(leaseOf(other, key));
  });

  test('extends a held lease, and never shortens it', async () => {
    const ask = open();
    const keys = [freshKey(), freshKey()];
    const lease = leaseOf(kind, keys, TTL);
    const { slots } = await ask.granted(lease);
    lease.slots = slots;
    assert.equal(await ask.extend(lease, 4 * TTL), true);
    assert.equal(await ask.extend(lease, TTL), true);
    for (const key of keys) {
      const { remaining } = (await ask.read(key))!.holders[0]!;
      assert.ok(remaining > 2 * TTL && remaining <= 4 * TTL, `${remaining} ms`);
    }
  });

  test('`extend` and `raise` fail for a lease that is not held, and do not restore it (S9)', async () => {
    const ask = open();
    const key = freshKey();
    const [never, released] = [leaseOf(kind, freshKey()), leaseOf(kind, freshKey())];
    const lapsed = leaseOf(kind, key, lapse);
    await ask.granted(released);
    await ask.release(released);
    const { token } = await ask.granted(lapsed);
    await ask.lapsed(key, lapsed);
    for (const lease of [never, released, lapsed]) {
      assert.equal(await ask.extend(lease), false);
      if (ask.store.raise) assert.equal(await ask.raise(lease, token + 100), false);
      assert.equal(await ask.read(lease.keys[0]!), undefined);
    }
  });

  test('`extend` extends all leases that are still held, and reports success or failure for each lease', async () => {
    const ask = open();
    const leases = [1, 2, 3].map(() => leaseOf(kind, freshKey()));
    await ask.granted(leases[0]!);
    await ask.granted(leases[2]!);
    const told = new Map<number, boolean | Error>();
    ask.store.extend(leases, 2 * TTL, (index, reply) => told.set(index, reply));
    await until(() => told.size === 3);
    assert.deepEqual([told.get(0), told.get(1), told.get(2)], [true, false, true]);
  });

  test('ignores the release of a lease that does not hold the key, however often the release is repeated (S7)', async () => {
    const ask = open();
    const key = freshKey();
    const lapsed = leaseOf(kind, key, lapse);
    await ask.granted(lapsed);
    await ask.lapsed(key, lapsed);
    const next = leaseOf(kind, key);
    const { slots } = await ask.granted(next);
    assert.deepEqual(slots, mode === 'permits' ? [0] : undefined);
    for (let time = 0; time < 2; time++) await ask.release(lapsed);
    await ask.release(leaseOf(kind, key));
    assert.equal(await ask.extend(lapsed), false);
    assert.deepEqual(await ask.holders(key), [next.id]);
    assert.equal(await ask.extend(next), true);
  });

  test('locks all of several keys, or none of them', async () => {
    const ask = open();
    const [a, b, c] = [freshKey(), freshKey(), freshKey()];
    const holder = leaseOf(other, b);
    await ask.granted(holder);
    const lease = leaseOf(other.mode === mode ? other : kind, [a, b, c]);
    await ask.refused(lease);
    assert.deepEqual([await ask.holders(a), await ask.holders(c)], [[], []]);
    await ask.release(holder);
    const { slots } = await ask.granted(leaseOf(kind, [a, b, c]));
    assert.deepEqual(slots, mode === 'permits' ? [0, 0, 0] : undefined);
  });

  test('does not count a lock of several keys as held when one of the keys is gone', async () => {
    const ask = open();
    const [a, b] = [freshKey(), freshKey()];
    const lease = leaseOf(kind, [a, b]);
    const { token } = await ask.granted(lease);
    assert.deepEqual(await ask.store.forceRelease?.(a, [lease.id]), [lease.id]);
    assert.equal(await ask.extend(lease), false);
    if (ask.store.raise) assert.equal(await ask.raise(lease, token + 1), false);
    await ask.notGranted(lease);
    assert.deepEqual(await ask.holders(a), []);
    await ask.release(lease);
    assert.deepEqual(await ask.holders(b), []);
  });

  test('gives each new lease a larger token, for one key and for several keys', async () => {
    const ask = open();
    const [a, b, c] = [freshKey(), freshKey(), freshKey()];
    const tokens: number[] = [];
    for (const keys of [[a], [a, b], [b, c], [c], [a, b, c], [a, c]]) {
      const lease = leaseOf(kind, keys);
      tokens.push((await ask.granted(lease)).token);
      await ask.release(lease);
    }
    assert.deepEqual(
      tokens,
      [...new Set(tokens)].toSorted((x, y) => x - y),
    );
  });

  for (const [how, end] of ENDS) {
    test(`gives a larger token after a lease that ${how}, even if that token was ahead of the clock`, async () => {
      const ask = open();
      const keys = [freshKey(), freshKey()];
      const lease = leaseOf(kind, keys, how === 'has expired' ? lapse : TTL);
      const proposal = tokenAt(Date.now() + AHEAD_MS);
      let { token } = await ask.granted(lease, ask.store.raise ? { proposal } : {});
      if (ask.store.raise && how !== 'has expired' && (await ask.raise(lease, token + 1_000))) token += 1_000;
      await end(ask, lease);
      for (const key of keys) assert.ok((await ask.granted(leaseOf(other, key))).token > token);
    });
  }

  test('gives a larger token after an expired lease, and keeps the token in an extension', async () => {
    const ask = open();
    const key = freshKey();
    const lapsed = leaseOf(kind, key, lapse);
    const { token } = await ask.granted(lapsed);
    await ask.lapsed(key, lapsed);
    const next = leaseOf(kind, key);
    const granted = await ask.granted(next);
    assert.ok(granted.token > token);
    await ask.extend(next, 2 * TTL);
    assert.equal((await ask.read(key))?.holders[0]?.fencingToken, granted.token);
  });

  test('`raise` changes the token of a lease only to a larger token, and later leases get still larger tokens', async () => {
    const ask = open();
    if (!ask.store.raise) return;
    const [a, b] = [freshKey(), freshKey()];
    const lease = leaseOf(kind, [a, b]);
    const { token } = await ask.granted(lease);
    assert.equal(await ask.raise(lease, token + 1_000), true);
    for (const key of [a, b]) assert.equal((await ask.read(key))?.holders[0]?.fencingToken, token + 1_000);
    // A raise to a smaller token fails: the lease may have been granted again since, with the larger token.
    assert.equal(await ask.raise(lease, token), false);
    assert.equal((await ask.read(a))?.holders[0]?.fencingToken, token + 1_000);
    await ask.release(lease);
    assert.ok((await ask.granted(leaseOf(kind, a))).token > token + 1_000);
  });

  test('grants a token that is at least the proposed token', async () => {
    const ask = open();
    // A store without `raise` is always the only node, and an only node gets no proposed token.
    if (!ask.store.raise) return;
    const key = freshKey();
    const first = leaseOf(kind, key);
    const { token } = await ask.granted(first);
    await ask.release(first);
    // Half a second ahead of the clock, or just above tokens that an earlier test brought further ahead.
    const proposal = Math.max(token + 1, tokenAt(Date.now() + 500));
    assert.equal((await ask.granted(leaseOf(kind, key), { proposal })).token, proposal);
  });

  test('finds held keys by prefix', async () => {
    const ask = open();
    const prefix = freshKey();
    const keys = ['a', 'b'].map((end) => `${prefix}:${end}`);
    for (const key of keys) await ask.granted(leaseOf(kind, key));
    await ask.granted(leaseOf(kind, freshKey()));
    const found = new Set<string>();
    for await (const page of ask.store.scan?.(prefix) ?? []) for (const key of page) found.add(key);
    assert.deepEqual([...found].toSorted(), keys);
  });

  test('`forceRelease` ends the holders with the given ids, and no other holder of the key', async () => {
    const ask = open();
    const key = freshKey();
    const one = leaseOf(kind, key);
    const another = leaseOf(kind, key);
    await ask.granted(one);
    if (hasMany) await ask.granted(another);
    assert.deepEqual(await ask.store.forceRelease?.(key, [leaseOf(kind, key).id]), []);
    const ids = ['0'.repeat(32), one.id];
    assert.deepEqual(await ask.store.forceRelease?.(key, ids), [one.id]);
    assert.deepEqual(await ask.store.forceRelease?.(key, ids), []);
    assert.deepEqual(await ask.holders(key), hasMany ? [another.id] : []);
    assert.equal(await ask.extend(one), false);
  });

  if (mode !== 'shared') {
    test('does not free the key of a released lease before the end of `keepFor`', async () => {
      const ask = open();
      const one = kindOf(mode, 1);
      const { key, lease, token } = await inTime(3 * lapse, async (begins) => {
        const kept = freshKey();
        const released = leaseOf(one, kept);
        const granted = await ask.granted(released);
        begins();
        released.acquired(performance.now(), 3 * lapse);
        await ask.release(released);
        await ask.release(released);
        const { holder } = await ask.refused(leaseOf(one, kept));
        assert.ok(holder.remaining <= 3 * lapse, `${holder.remaining} ms`);
        assert.deepEqual(await ask.holders(kept), [released.id]);
        return { key: kept, lease: released, token: granted.token };
      });
      assert.equal(await ask.extend(lease), false);
      await ask.lapsed(key, lease);
      assert.ok((await ask.granted(leaseOf(one, key))).token > token);
    });
  }

  if (!hasMany) return;

  test('each holder has its own time of expiry, which no other holder changes (S23)', async () => {
    const ask = open();
    const { key, long, short } = await inTime(lapse, async (begins) => {
      const shared = freshKey();
      const [last, first] = [leaseOf(kind, shared), leaseOf(kind, shared, lapse)];
      await ask.granted(last);
      begins();
      await ask.granted(first);
      assert.equal(await ask.extend(last, 2 * TTL), true);
      assert.deepEqual(await ask.holders(shared), [first.id, last.id]);
      return { key: shared, long: last, short: first };
    });
    await ask.lapsed(key, short);
    assert.deepEqual(await ask.holders(key), [long.id]);
    assert.equal(await ask.extend(short), false);
    assert.ok((await ask.read(key))!.holders[0]!.remaining > TTL);
    assert.equal(await ask.extend(long), true);
  });

  test('keeps a key for the longest of the ttls to which its holders are extended at the same time (S23)', async () => {
    const ask = open();
    const inEachOrder = await inTime(lapse, async (begins) => {
      const pairs = [0, 1].map(() => {
        const key = freshKey();
        return { key, long: leaseOf(kind, key, lapse), short: leaseOf(kind, key, lapse) };
      });
      begins();
      for (const { long, short } of pairs)
        for (const lease of [long, short]) lease.slots = (await ask.granted(lease)).slots;
      const extensions = pairs.flatMap(({ long, short }, at) => {
        const both = [() => ask.extend(long, 2 * TTL), () => ask.extend(short, lapse)];
        return at === 0 ? both : both.toReversed();
      });
      assert.deepEqual(await Promise.all(extensions.map((extend) => extend())), [true, true, true, true]);
      return pairs;
    });
    for (const { key, long, short } of inEachOrder) {
      await ask.lapsed(key, short);
      if (hasExclusive) await ask.refused(leaseOf(other, key));
      assert.deepEqual(await ask.holders(key), [long.id]);
      assert.equal(await ask.extend(long), true);
    }
  });

  test('grants no lock in a conflicting mode until the last holder has released the key', async () => {
    const ask = open();
    const key = freshKey();
    const [long, short] = [leaseOf(kind, key), leaseOf(kind, key, lapse)];
    await ask.granted(short);
    await ask.granted(long);
    await ask.lapsed(key, short);
    await ask.release(short);
    if (hasExclusive) await ask.refused(leaseOf(other, key));
    await ask.release(long);
    await ask.granted(leaseOf(other, key));
  });
}

/** The contract for two modes of one key. */
function betweenModes({ test, open, modes }: Contract): void {
  for (const one of modes) {
    for (const another of modes) {
      if (canHoldTogether(one, another)) continue;
      test(`refuses the mode '${another}', and names a holder, until all holders in the mode '${one}' have released the key`, async () => {
        const ask = open();
        const key = freshKey();
        const holders = [leaseOf(kindOf(one), key, TTL / 2, 'first')];
        if (one !== 'exclusive') holders.push(leaseOf(kindOf(one), key, TTL, 'last'));
        const tokens: number[] = [];
        for (const lease of holders) tokens.push((await ask.granted(lease)).token);
        const { holder, ran } = await ask.refused(leaseOf(kindOf(another), key));
        const last = holders.at(-1)!;
        assert.deepEqual([holder.id, holder.owner, ran], [last.id, last.owner, undefined]);
        assert.ok(holder.remaining > (last.ttl * 3) / 4 && holder.remaining <= last.ttl);
        assert.equal('mode' in holder && holder.mode, one);
        await ask.release(last);
        if (holders.length > 1) {
          const refusal = await ask.refused(leaseOf(kindOf(another), key));
          assert.equal(refusal.holder.id, holders[0]!.id);
          assert.ok(refusal.holder.remaining <= TTL / 2);
          await ask.release(holders[0]!);
        }
        const next = leaseOf(kindOf(another), key);
        const { token } = await ask.granted(next);
        assert.ok(tokens.every((before) => before < token));
        assert.equal((await ask.read(key))?.mode, another);
      });
    }
  }
}
