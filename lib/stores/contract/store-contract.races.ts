import { strict as assert } from 'node:assert';
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import type { Lease } from '../../core/lease.js';
import { canHoldTogether } from '../../core/lock-mode.js';
import type { AcquireReply } from '../../core/ports.js';
import {
  answersOf,
  type Contract,
  freshKey,
  type Granted,
  kindOf,
  leaseOf,
  PERMITS,
  type StoreAsker,
  TTL,
} from './store-asker.js';

/** The number of requests at a time: so many that some arrive while the store handles another. */
const AT_ONCE = 20;

/** The number of repetitions, each with new keys, in which requests meet at slightly different moments. */
const ROUNDS = 10;

/** The requests of one turn of the event loop reach a store in one call or in several calls. */
const CALLS = [
  { how: 'in one call', inOneCall: true },
  { how: 'in separate calls', inOneCall: false },
] as const;

/**
 * The contract of simultaneous requests. Each request takes effect at one moment: no request sees, and none loses, a
 * part of another. A store that decides in one step and writes in a later step breaks this.
 */
export function racesContract({ test, open, modes }: Contract): void {
  for (const mode of modes) {
    for (const { how, inOneCall } of CALLS) {
      test(`grants as many of ${AT_ONCE} simultaneous requests in the mode '${mode}', ${how}, as may hold the key together`, async () => {
        const ask = open();
        const key = freshKey();
        const most = mode === 'exclusive' ? 1 : mode === 'permits' ? PERMITS : AT_ONCE;
        const leases = range(AT_ONCE, (index) => leaseOf(kindOf(mode), key, TTL, `caller ${index}`));
        const replies = await ask.acquireAll(leases, inOneCall);
        const granted = grantedOf(leases, replies);
        assert.equal(granted.length, most, `${granted.length} of ${AT_ONCE} are granted`);
        assert.deepEqual((await ask.holders(key)).toSorted(), idsOf(granted));
        const slots = replies.filter(isGranted).map(({ slots: [slot] = [] }) => slot);
        if (mode === 'permits') assert.deepEqual(slots.toSorted(), [0, 1, 2]);
      });
    }

    for (const [how, end] of ENDS) {
      test(`does not restore a lease in the mode '${mode}' that is extended while ${how} ends it (S9)`, async () => {
        const ask = open();
        const leases = range(AT_ONCE, () => leaseOf(kindOf(mode), [freshKey(), freshKey()]));
        for (const lease of leases) lease.slots = (await ask.granted(lease)).slots;
        await Promise.all(
          leases.map(async (lease, index) => {
            // A store may answer with an error instead, for example because a newer request replaces an older one.
            const extend = (): Promise<unknown> => ask.extend(lease).catch(() => undefined);
            const extending = [extend()];
            if (index % 2 === 0) await nextTurn();
            const ending = end(ask, lease);
            extending.push(extend());
            if (index % 3 === 0) await nextTurn();
            extending.push(extend());
            await Promise.all([...extending, ending]);
          }),
        );
        for (const lease of leases) {
          assert.equal(await ask.extend(lease), false);
          assert.deepEqual(await ask.holders(lease.keys[0]!), []);
        }
      });
    }
  }

  for (const mode of modes) {
    if (mode === 'exclusive') continue;
    test(`loses no change of a key in the mode '${mode}' when callers acquire, extend and release at the same time`, async () => {
      const ask = open();
      const key = freshKey();
      const kind = kindOf(mode, AT_ONCE);
      const count = AT_ONCE / 2;
      const before = range(count, () => leaseOf(kind, key));
      for (const lease of before) lease.slots = (await ask.granted(lease)).slots;
      const [staying, leaving] = [
        before.filter((_, at) => at % 2 === 0),
        before.filter((_, at) => at % 2 > 0),
      ];
      const joining = range(count, () => leaseOf(kind, key));
      await Promise.all([
        ...joining.map((lease) => ask.granted(lease)),
        ...staying.map(async (lease) => assert.equal(await ask.extend(lease, 4 * TTL), true)),
        ...leaving.map((lease) => ask.release(lease)),
      ]);
      const holders = (await ask.read(key))?.holders ?? [];
      assert.deepEqual(holders.map(({ id }) => id).toSorted(), idsOf([...staying, ...joining]));
      for (const { id, remaining } of holders) {
        const isExtended = staying.some((lease) => lease.id === id);
        assert.equal(remaining > TTL, isExtended, `${remaining} ms`);
      }
    });
  }

  for (const { how, inOneCall } of CALLS) {
    for (const one of modes) {
      for (const another of modes.slice(modes.indexOf(one) + 1)) {
        if (canHoldTogether(one, another)) continue;
        test(`grants simultaneous requests in the modes '${one}' and '${another}', ${how}, in one of the modes only`, async () => {
          const ask = open();
          for (let round = 0; round < ROUNDS; round++) {
            const key = freshKey();
            const leases = range(AT_ONCE, (at) =>
              leaseOf(kindOf((at + round) % 2 ? one : another, AT_ONCE), key),
            );
            const granted = grantedOf(leases, await ask.acquireAll(leases, inOneCall));
            assert.ok(granted.length > 0);
            assert.equal(new Set(granted.map(({ kind }) => kind.mode)).size, 1, 'both modes are granted');
            assert.deepEqual((await ask.holders(key)).toSorted(), idsOf(granted));
          }
        });
      }
    }

    test(`of simultaneous requests for overlapping keys, ${how}, grants those that have no key in common with another`, async () => {
      const ask = open();
      for (let round = 0; round < ROUNDS; round++) {
        const [a, b, c, d] = range(4, freshKey) as [string, string, string, string];
        // Two requests with the same keys in another order, or a ring of requests.
        const pairs = [
          [a, b],
          [b, a],
          [c, d],
          [d, c],
        ];
        const ring = [[a, b], [c, d, a], [b, c], [d, c], [d, a], [c, b], [a], [d, b]];
        const wanted = round % 2 > 0 ? ring : pairs;
        const leases = wanted.map((keys) => leaseOf(kindOf(modes[0]!, 1), keys));
        const granted = grantedOf(leases, await ask.acquireAll(leases, inOneCall));
        for (const key of [a, b, c, d]) {
          const by = granted.filter(({ keys }) => keys.includes(key));
          assert.ok(by.length <= 1, `${by.length} leases get one key`);
          assert.deepEqual(await ask.holders(key), idsOf(by));
        }
        for (const { keys } of leases)
          assert.ok(
            granted.some((lease) => lease.keys.some((key) => keys.includes(key))),
            'a lease is refused although all its keys are free',
          );
      }
    });
  }

  test('locks none of several keys, not even for a moment, while another lease holds one of them', async () => {
    const ask = open();
    for (let round = 0; round < ROUNDS; round++) {
      const [held, free] = [freshKey(), freshKey()];
      const kind = kindOf(modes[0]!, 1);
      await ask.granted(leaseOf(kind, held));
      const refused = range(6, (at) => ask.refused(leaseOf(kind, at % 2 ? [held, free] : [free, held])));
      if (round % 2 > 0) await nextTurn();
      const only = leaseOf(kind, free);
      await Promise.all([...refused, ask.granted(only)]);
      assert.deepEqual(await ask.holders(free), [only.id]);
    }
  });

  test('grants the key to one caller at a time, with increasing tokens, while callers take turns', async () => {
    const ask = open();
    const key = freshKey();
    const tokens: number[] = [];
    let inside = 0;
    const takeTurns = async (): Promise<void> => {
      for (let turns = 0; turns < 4;) {
        const lease = leaseOf(kindOf(modes[0]!, 1), key);
        const reply = await ask.acquire(lease);
        if (!reply.granted) {
          await sleep(1);
          continue;
        }
        turns++;
        assert.equal(++inside, 1, 'two callers hold the key');
        tokens.push(reply.token);
        lease.slots = reply.slots;
        assert.equal(await ask.extend(lease), true);
        assert.deepEqual(await ask.holders(key), [lease.id]);
        inside--;
        await ask.release(lease);
      }
    };
    await Promise.all(range(6, takeTurns));
    assert.deepEqual(
      tokens,
      [...new Set(tokens)].toSorted((x, y) => x - y),
    );
  });

  test('undoes acquisitions that are still under way when their leases are released (S6)', async () => {
    const ask = open();
    const leases = range(AT_ONCE, () => leaseOf(kindOf(modes[0]!), [freshKey(), freshKey()]));
    await Promise.all(
      leases.map(async (lease, index) => {
        const asked = ask.acquire(lease).catch(() => undefined);
        for (let turn = 0; turn < index % 4; turn++) await nextTurn();
        lease.ended = true;
        await Promise.all([asked, ask.release(lease)]);
      }),
    );
    for (const { keys } of leases) for (const key of keys) assert.deepEqual(await ask.holders(key), []);
  });

  test('answers each request of a call once, with its own answer', async () => {
    const ask = open();
    const { store } = ask;
    const keys = range(9, freshKey);
    const taken = keys.map((key, at) => (at % 3 === 1 ? leaseOf(kindOf(modes[0]!, 1), key) : undefined));
    for (const lease of taken) if (lease) await ask.granted(lease);
    const leases = keys.map((key) => leaseOf(kindOf(modes[0]!, 1), key));
    const isFree = taken.map((lease) => lease === undefined);
    const replies = await ask.acquireAll(leases, true);
    assert.deepEqual(replies.map(isGranted), isFree);
    for (const [index, reply] of replies.entries()) if (isGranted(reply)) leases[index]!.slots = reply.slots;
    const extended = await answersOf<boolean>(9, (tell) => store.extend(leases, TTL, tell));
    assert.deepEqual(extended, isFree);
    const requests = leases.map((lease) => ({ lease, pause: 0 }));
    const released = await answersOf<undefined>(9, (tell) => store.release(requests, tell));
    assert.deepEqual(released, Array(9).fill(undefined));
    for (const [index, key] of keys.entries())
      assert.deepEqual(await ask.holders(key), idsOf([taken[index]].filter((lease) => lease !== undefined)));
  });

  for (const mode of modes) {
    if (mode === 'shared') continue;
    test(`does not free a key in the mode '${mode}' for a moment when \`keepFor\` keeps the key after the release`, async () => {
      const ask = open();
      for (let round = 0; round < ROUNDS; round++) {
        const key = freshKey();
        const lease = leaseOf(kindOf(mode, 1), key);
        lease.slots = (await ask.granted(lease)).slots;
        lease.acquired(performance.now(), TTL);
        const released = ask.release(lease);
        if (round % 2 > 0) await nextTurn();
        await Promise.all([released, ...range(AT_ONCE, () => ask.refused(leaseOf(kindOf(mode, 1), key)))]);
        assert.deepEqual(await ask.holders(key), [lease.id]);
      }
    });
  }
}

/** The ways in which another call ends a held lease. */
const ENDS: readonly (readonly [string, (ask: StoreAsker, lease: Lease) => Promise<unknown>])[] = [
  [
    'its release',
    (ask, lease) => {
      lease.ended = true;
      return ask.release(lease);
    },
  ],
  [
    '`forceRelease`',
    async (ask, { keys, id }) =>
      assert.deepEqual(await ask.store.forceRelease?.(keys[0]!, [id]), [id], 'nothing is released'),
  ],
];

function range<Item>(count: number, make: (index: number) => Item): Item[] {
  return Array.from({ length: count }, (_, index) => make(index));
}

function isGranted(reply: AcquireReply | Error): reply is Granted {
  return !(reply instanceof Error) && reply.granted;
}

/** The granted leases. The contract allows a store to answer with an error, but not to store such a lease. */
function grantedOf(leases: readonly Lease[], replies: readonly (AcquireReply | Error)[]): Lease[] {
  return leases.filter((_, index) => isGranted(replies[index]!));
}

function idsOf(leases: readonly Lease[]): string[] {
  return leases.map(({ id }) => id).toSorted();
}
