import { strict as assert } from 'node:assert';
import { EXCLUSIVE, SHARED } from '../../core/lock-mode.js';
import { type Contract, freshKey, leaseOf } from './store-asker.js';

/** The contract of readers. */
export function sharedContract({ test, open, modes, lapse }: Contract): void {
  test('admits any number of readers, and gives them all the same token if the store is one of several nodes', async () => {
    const ask = open();
    const key = freshKey();
    const readers = Array.from({ length: 40 }, () => leaseOf(SHARED, key));
    const tokens = new Set<number>();
    for (const [index, reader] of readers.entries()) {
      // The proposed token is larger than the token of the readers.
      const proposal = index === 0 ? 0 : [...tokens][0]! + 1_000;
      tokens.add((await ask.granted(reader, { proposal })).token);
    }
    // A store that is the only node need not give all readers the same token: the token of a writer is larger than the
    // largest of them (S21).
    if (ask.store.raise) assert.equal(tokens.size, 1);
    assert.deepEqual((await ask.holders(key)).toSorted(), readers.map(({ id }) => id).toSorted());
    const token = Math.max(...tokens);
    for (const reader of readers) await ask.release(reader);
    assert.ok((await ask.granted(leaseOf(SHARED, key))).token > token);
  });

  test('gives a new reader the largest of the raised tokens of the present readers', async () => {
    const ask = open();
    if (!ask.store.raise) return;
    const key = freshKey();
    const [one, another, third] = [1, 2, 3].map(() => leaseOf(SHARED, key)) as [
      ReturnType<typeof leaseOf>,
      ReturnType<typeof leaseOf>,
      ReturnType<typeof leaseOf>,
    ];
    const { token } = await ask.granted(one);
    await ask.granted(another);
    assert.equal(await ask.raise(one, token + 500), true);
    // Readers do not affect each other: the larger token of one reader does not prevent a raise for another reader.
    assert.equal(await ask.raise(another, token + 100), true);
    assert.equal((await ask.granted(third)).token, token + 500);
  });

  test('keeps the token of a reader when the token of another reader is raised', async () => {
    const ask = open();
    if (!ask.store.raise) return;
    const key = freshKey();
    const readers = [1, 2, 3].map(() => leaseOf(SHARED, key));
    const [lifted] = readers as [ReturnType<typeof leaseOf>];
    for (const lease of readers) {
      const { token } = await ask.granted(lease);
      if (lease === lifted) continue;
      assert.equal(await ask.raise(lifted, token + 500), true);
      assert.equal((await ask.granted(lease)).token, token);
      const shown = (await ask.read(key))!.holders.find(({ id }) => id === lease.id);
      assert.equal(shown?.fencingToken, token);
    }
  });

  test('gives a lease of several keys a token that is smaller than all later tokens of these keys', async () => {
    const ask = open();
    const [a, b] = [freshKey(), freshKey()];
    const one = leaseOf(SHARED, a);
    const before = await ask.granted(one);
    const both = leaseOf(SHARED, [a, b]);
    const { token } = await ask.granted(both);
    assert.ok(token >= before.token);
    await ask.release(one);
    await ask.release(both);
    for (const key of [a, b]) assert.ok((await ask.granted(leaseOf(SHARED, key))).token > token);
  });

  test('a reader keeps the lock after all other readers have expired or been released', async () => {
    const ask = open();
    const key = freshKey();
    const [lapsing, leaving, staying] = [
      leaseOf(SHARED, key, lapse),
      leaseOf(SHARED, key),
      leaseOf(SHARED, key),
    ];
    for (const lease of [lapsing, leaving, staying]) await ask.granted(lease);
    await ask.release(leaving);
    await ask.lapsed(key, lapsing);
    assert.deepEqual(await ask.holders(key), [staying.id]);
    assert.equal(await ask.extend(leaving), false);
    assert.equal(await ask.extend(staying), true);
  });

  if (!modes.includes('exclusive')) return;

  test('gives larger tokens to a writer after readers, and to readers after a writer (S21)', async () => {
    const ask = open();
    const key = freshKey();
    let last = 0;
    for (let phase = 0; phase < 3; phase++) {
      const readers = [1, 2, 3].map(() => leaseOf(SHARED, key));
      for (const reader of readers) {
        const { token } = await ask.granted(reader);
        assert.ok(token > last);
        last = reader === readers.at(-1) ? token : last;
      }
      await ask.notGranted(leaseOf(EXCLUSIVE, key));
      for (const reader of readers) await ask.release(reader);
      const writer = leaseOf(EXCLUSIVE, key);
      const { token } = await ask.granted(writer);
      assert.ok(token > last);
      last = token;
      await ask.notGranted(leaseOf(SHARED, key));
      await ask.release(writer);
    }
  });
}
