import { strict as assert } from 'node:assert';
import type { HeldKey } from '../../core/ports.js';
import { answersOf, type Contract, freshKey, kindOf, leaseOf, type StoreAsker, TTL } from './store-asker.js';

/** Endings of keys, in pairs that some databases regard as equal, or as a pattern and a text that fits it. */
const SIMILAR = [
  ['order', 'Order'],
  ['order', 'order '],
  ['order', ' order'],
  ['order', 'order\t'],
  ['caf\u00E9', 'cafe\u0301'],
  ['caf\u00E9', 'cafe'],
  ['stra\u00DFe', 'strasse'],
  ['1', '01'],
  ['1', '1.0'],
  ['a:b', 'a::b'],
  ['a*', 'ab'],
  ['a?', 'ab'],
  ['a[b]', 'ab'],
  ['a%', 'ab'],
  ['a_', 'ab'],
  ['a.', 'ab'],
  ['a\\b', 'ab'],
  [`${'x'.repeat(255)}a`, `${'x'.repeat(255)}b`],
  [`${'x'.repeat(1_000)}a`, `${'x'.repeat(1_000)}b`],
] as const;

/** Texts with characters that formats and queries use for themselves. */
const SPECIAL = [
  "it's",
  '"quoted"',
  'back\\slash',
  'a|b,c;d',
  '{braces}[brackets]',
  'percent%20',
  '$1 ${2} :3 ?',
  'line\nbreak',
  '\u65E5\u672C \u{1F512}',
  'null',
  '0',
];

/** The most keys that a test holds at a time. */
const MOST_KEYS = 1_200;

/** The contract of keys, and of what a store shows about them. */
export function keysContract({ test, open, modes, mostPermits, lapse }: Contract): void {
  const kind = kindOf(modes[0]!, 1);

  test('keeps keys apart that some databases regard as equal', async () => {
    const ask = open();
    for (const ends of SIMILAR) {
      const prefix = freshKey();
      const leases = ends.map((end) => leaseOf(kind, `${prefix}:${end}`));
      for (const lease of leases) await ask.granted(lease);
      for (const lease of leases) assert.deepEqual(await ask.holders(lease.keys[0]!), [lease.id]);
      await ask.release(leases[0]!);
      assert.equal(await ask.extend(leases[1]!), true);
      await ask.refused(leaseOf(kind, leases[1]!.keys));
    }
  });

  test('returns keys and owners as they were given, whatever characters they contain', async () => {
    const ask = open();
    const prefix = freshKey();
    const keys = SPECIAL.map((text) => `${prefix}:${text}`);
    const lease = leaseOf(kind, keys[0]!, TTL, SPECIAL[0]!);
    await ask.granted(lease);
    for (const [index, key] of keys.entries()) {
      if (index > 0) await ask.granted(leaseOf(kind, key, TTL, SPECIAL[index]!));
      assert.equal((await ask.refused(leaseOf(kind, key))).holder.owner, SPECIAL[index]);
    }
    const states = (await ask.store.read?.(keys)) as readonly HeldKey[];
    assert.deepEqual(
      states.map(({ holders: [holder] }) => holder?.owner),
      SPECIAL,
    );
    assert.deepEqual(await found(ask, `${prefix}:`), keys.toSorted());
  });

  test('reads keys in the given order, also free keys and repeated keys', async () => {
    const ask = open();
    const [a, b, free] = [freshKey(), freshKey(), freshKey()];
    for (const key of [a, b]) await ask.granted(leaseOf(kind, key, TTL, key));
    const states = (await ask.store.read?.([b, free, a, b])) ?? [];
    const owners = states.map((state) => (state instanceof Error ? state : state?.holders[0]?.owner));
    assert.deepEqual(owners, [b, undefined, a, b]);
  });

  test('finds every held key, in pages that one read accepts', async () => {
    const ask = open();
    const prefix = freshKey();
    const count = Math.min(mostPermits, MOST_KEYS);
    const leases = Array.from({ length: count }, (_, at) =>
      leaseOf(kindOf(modes[at % modes.length]!), `${prefix}:${at}`),
    );
    for (let from = 0; from < count; from += 50) {
      const replies = await ask.acquireAll(leases.slice(from, from + 50), true);
      assert.ok(replies.every((reply) => !(reply instanceof Error) && reply.granted));
    }
    const other = freshKey();
    await ask.granted(leaseOf(kind, other));
    const held = leases.map(({ keys: [key] }) => key).toSorted();
    assert.deepEqual(await found(ask, prefix), held);
    const half = leases.filter((_, at) => at % 2 > 0);
    const requests = half.map((lease) => ({ lease, pause: 0 }));
    await answersOf<undefined>(half.length, (tell) => ask.store.release(requests, tell));
    const left = leases.filter((lease) => !half.includes(lease)).map(({ keys: [key] }) => key);
    assert.deepEqual(await found(ask, prefix), left.toSorted());
  });

  test('regards the characters of a prefix as text and not as a pattern', async () => {
    const ask = open();
    const base = freshKey();
    for (const [first, second] of SIMILAR) {
      const prefix = `${base}:${first.slice(0, 8)}`;
      const other = `${base}:${second.slice(0, 8)}`;
      if (other.startsWith(prefix)) continue;
      const keys = [`${prefix}!`, `${other}!`];
      const leases = keys.map((key) => leaseOf(kind, key));
      for (const lease of leases) await ask.granted(lease);
      assert.deepEqual(await found(ask, prefix), [keys[0]]);
      for (const lease of leases) await ask.release(lease);
    }
  });

  test('does not report expired holders', async () => {
    const ask = open();
    const [key, other] = [freshKey(), freshKey()];
    const lapsing = leaseOf(kind, [key, other], lapse);
    await ask.granted(lapsing);
    await ask.lapsed(key, lapsing);
    for (const each of lapsing.keys) assert.deepEqual(await ask.holders(each), []);
  });
}

/** The held keys that a scan with the prefix finds, each of them once. */
async function found({ store }: StoreAsker, prefix: string): Promise<string[]> {
  const held = new Set<string>();
  for await (const page of store.scan?.(prefix) ?? []) {
    for (const key of page) assert.ok(key.startsWith(prefix), `${key} does not begin with ${prefix}`);
    const states = (await store.read?.(page)) ?? [];
    assert.equal(states.length, page.length);
    for (const [index, state] of states.entries())
      if (state && !(state instanceof Error)) held.add(page[index]!);
  }
  return [...held].toSorted();
}
