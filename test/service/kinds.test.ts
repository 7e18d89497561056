import 'reflect-metadata';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import {
  currentLock,
  type LockEvent,
  type LockHandle,
  LockHeldError,
  LockLostError,
  LockService,
  WithLock,
} from '../../lib/index.js';
import { expectLocked, RedlockTestingModule, TestLocks } from '../../lib/testing/index.js';

@Injectable()
class Catalog {
  @WithLock((id: number) => `catalog:${id}`, { mode: 'shared' })
  async read<T>(_id: number, task: () => Promise<T> | T): Promise<T> {
    return task();
  }

  @WithLock((id: number) => `catalog:${id}`, { onBusy: 'skip' })
  async write(_id: number): Promise<string | undefined> {
    return 'written';
  }

  @WithLock((id: number) => `catalog:${id}`, { reentrant: true, onBusy: () => 'instead' })
  async writeInside(_id: number): Promise<string> {
    return 'written';
  }

  @WithLock((id: number) => `catalog:${id}`, { mode: 'shared', reentrant: true })
  async readInside<T>(_id: number, task?: () => Promise<T> | T): Promise<LockHandle['mode'] | T | undefined> {
    return task ? task() : currentLock()?.mode;
  }

  @WithLock('stripe', { permits: 2, reentrant: true })
  async pay<T>(task: () => Promise<T> | T): Promise<T> {
    return task();
  }
}

/** Milliseconds for which a call waits for a lock: much longer than any call that does not wait, on a busy machine, too. */
const TIMEOUT_MS = 60_000;

const events: LockEvent[] = [];
let locks: TestLocks;
let module: TestingModule;
let service: LockService;
let catalog: Catalog;

beforeEach(async () => {
  events.length = 0;
  locks = new TestLocks();
  module = await Test.createTestingModule({
    imports: [
      RedlockTestingModule.forRoot({
        ...{ locks, owner: 'me', defaults: { retry: { timeout: TIMEOUT_MS } } },
        onEvent: (event) => events.push(event),
      }),
    ],
    providers: [Catalog],
  }).compile();
  service = module.get(LockService);
  catalog = module.get(Catalog);
});
afterEach(async () => {
  locks.reset();
  await module.close();
});

const once = { retry: false } as const;

async function failureOf(promise: Promise<unknown>): Promise<Error> {
  return promise.then(
    () => new Error('it did not fail'),
    (error: unknown) => error as Error,
  );
}

describe('permits', () => {
  test('permits are held by at most n callers at a time, each in its own slot', async () => {
    const held = await Promise.all([1, 2, 3].map(() => service.acquire('stripe', { ...once, permits: 3 })));
    expect(held.map(({ mode }) => mode)).toEqual(['permits', 'permits', 'permits']);
    expect(held.map(({ slot }) => slot).toSorted()).toEqual([0, 1, 2]);
    const [first] = held as [LockHandle, ...LockHandle[]];
    expect(first.slots).toEqual([first.slot]);
    await first.extend();
    const { slot } = first;
    const refusal = await failureOf(service.acquire('stripe', { ...once, permits: 3 }));
    expect(refusal).toBeInstanceOf(LockHeldError);
    const { holders } = refusal as LockHeldError;
    expect(holders.map((each) => each.id).toSorted()).toEqual(held.map(({ id }) => id).toSorted());
    expect(holders.every(({ owner, mode }) => owner === 'me' && mode === 'permits')).toBe(true);
    await first.release();
    await using next = await service.acquire('stripe', { ...once, permits: 3 });
    expect(next.slot).toBe(slot);
  });

  test('a lock with a limit of one permit has slot 0', async () => {
    await using lock = await service.acquire('one', { permits: 1 });
    expect(lock.slot).toBe(0);
    await expect(service.tryAcquire('one', { permits: 1 })).resolves.toBeNull();
  });

  test('a lock with permits on several keys has one slot per key in `slots`, and its `slot` is undefined', async () => {
    await using one = await service.acquire('b', { permits: 2 });
    await using lock = await service.acquire(['b', 'a'], { permits: 2 });
    expect([one.slot, lock.keys, lock.slots, lock.slot]).toEqual([0, ['a', 'b'], [0, 1], undefined]);
  });

  test('the handle of an exclusive lock has no slots', async () => {
    await using lock = await service.acquire('plain');
    expect([lock.mode, lock.slot, lock.slots]).toEqual(['exclusive', undefined, undefined]);
  });

  test('a nested call joins the permit of its outer call, and gets the same slot', async () => {
    const [outer, inner] = await catalog.pay(async () => [
      currentLock()?.slot,
      await catalog.pay(() => currentLock()?.slot),
    ]);
    expect([outer, inner]).toEqual([0, 0]);
  });

  test('permits and an exclusive lock exclude each other, and the error names both kinds', async () => {
    const permit = await service.acquire('stripe', { permits: 5 });
    const refusal = await failureOf(service.acquire('stripe', once));
    expect(refusal.message).toContain(
      `"stripe" is held by me with \`permits\`, which excludes a lock in the mode 'exclusive'`,
    );
    await permit.release();
    await service.acquire('stripe', once);
    expect((await failureOf(service.acquire('stripe', { ...once, permits: 5 }))).message).toContain(
      "in the mode 'exclusive', which excludes a lock with `permits: 5`",
    );
  });

  test('a nested call is refused with `heldByCaller: true` when the outer call holds one of the permits', async () => {
    const others = await Promise.all([1, 2].map(() => locks.hold('stripe', { permits: 3, owner: 'them' })));
    await service.withLock('stripe', { permits: 3 }, async () => {
      await expect(service.acquire('stripe', { ...once, permits: 3 })).rejects.toMatchObject({
        heldByCaller: true,
      });
    });
    expect(others).toHaveLength(2);
    await expect(service.tryAcquire('stripe', { permits: 3 })).resolves.toMatchObject({ slot: 2 });
  });

  test('`inspect` shows the larger of two limits of permits, and the caller with the smaller limit is warned', async () => {
    await locks.hold('stripe', { permits: 5 });
    await using lock = await service.acquire('stripe', { permits: 2 });
    expect(lock.slot).toBe(1);
    await expect(service.inspect('stripe')).resolves.toMatchObject({ permits: 5, mode: 'permits' });
    expect(events.map(({ type }) => type)).toEqual(['acquired', 'permits-differ']);
    expect(events[1]).toMatchObject({ keys: ['stripe'], mode: 'permits', permits: 2, permitsSeen: 5 });
    events.length = 0;
    await service.acquire('stripe', { permits: 5 });
    expect(events.map(({ type }) => type)).toEqual(['acquired']);
  });

  test('a refused caller is warned when its limit of permits is smaller than the limit of the holders', async () => {
    await Promise.all([1, 2, 3].map(() => locks.hold('stripe', { permits: 5 })));
    await expect(service.tryAcquire('stripe', { permits: 2 })).resolves.toBeNull();
    expect(events.map(({ type }) => type)).toEqual(['refused', 'permits-differ']);
    expect(events[0]).toMatchObject({ error: { permitsSeen: 5 } });
    expect(events[1]).toMatchObject({ keys: ['stripe'], mode: 'permits', permits: 2, permitsSeen: 5 });
  });

  test('a nested call is refused with `heldByCaller: true`, even when the error lists only 10 of 50 holders', async () => {
    await service.withLock('stripe', { permits: 50 }, async () => {
      const others = Array.from({ length: 49 }, () => locks.hold('stripe', { permits: 50, ttl: 5_000 }));
      await Promise.all(others);
      const refusal = await failureOf(service.acquire('stripe', { ...once, permits: 50 }));
      expect(refusal).toMatchObject({ heldByCaller: true, holders: { length: 10 } });
      const ofTwo = await failureOf(service.acquire(['other', 'stripe'], { ...once, permits: 50 }));
      expect(ofTwo).toMatchObject({ heldByCaller: true });
    });
  });

  test('a nested call is refused with `heldByCaller: false` when only other holders block the nested call', async () => {
    await locks.hold('stripe', { permits: 10 });
    await service.withLock('stripe', { permits: 10 }, async (lock) => {
      expect(lock.slot).toBe(1);
      // With a limit of one permit there is only slot 0, which another holder has.
      expect(await failureOf(service.acquire('stripe', { ...once, permits: 1 }))).toMatchObject({
        heldByCaller: false,
        permitsSeen: 10,
      });
      // The permits of the other key are all taken, and permits of this key are free.
      for (let count = 0; count < 3; count++) await locks.hold('other', { permits: 3 });
      expect(await failureOf(service.acquire(['other', 'stripe'], { ...once, permits: 3 }))).toMatchObject({
        heldByCaller: false,
      });
    });
  });

  test('`forceRelease` can release one permit or all permits of a key', async () => {
    const held = await Promise.all([1, 2, 3].map(() => service.acquire('stripe', { permits: 3 })));
    const [first, second, third] = held as [LockHandle, LockHandle, LockHandle];
    await expect(service.forceRelease('stripe', { id: second.id })).resolves.toBe(true);
    expect(held.map((lock) => lock.isHeld())).toEqual([true, false, true]);
    expect(second.signal.reason).toBeInstanceOf(LockLostError);
    await expect(service.inspect('stripe')).resolves.toMatchObject({ permits: 3, holders: { length: 2 } });
    await expect(service.forceRelease('stripe', { id: second.id })).resolves.toBe(false);
    await expect(service.forceRelease('stripe')).resolves.toBe(true);
    expect([first.isHeld(), third.isHeld()]).toEqual([false, false]);
    await expect(service.inspect('stripe')).resolves.toMatchObject({ held: false, holders: [] });
  });

  test('`expectLocked` checks the permits and the mode of a lock', async () => {
    await catalog.pay(() => undefined);
    expectLocked(locks, 'stripe', { permits: 2 });
    expect(() => expectLocked(locks, 'stripe', { permits: 3 })).toThrow(/permits: 3.*acquired.*permits: 2/s);
    await catalog.read(1, () => undefined);
    expectLocked(locks, 'catalog:1', { mode: 'shared' });
    expect(() => expectLocked(locks, 'catalog:1', { mode: 'exclusive' })).toThrow("mode: 'shared'");
  });
});

describe('shared locks', () => {
  test('several callers can hold a shared lock together, but not beside an exclusive lock', async () => {
    await catalog.read(1, async () => {
      await using other = await service.acquire('catalog:1', { ...once, mode: 'shared' });
      expect(other).toMatchObject({ mode: 'shared', slot: undefined, slots: undefined });
      await expect(service.inspect('catalog:1')).resolves.toMatchObject({
        mode: 'shared',
        holders: [{ mode: 'shared' }, { mode: 'shared' }],
      });
    });
    await service.acquire('catalog:1');
    await expect(service.tryAcquire('catalog:1', { mode: 'shared' })).resolves.toBeNull();
  });

  test('a method with an exclusive lock is skipped while an unrelated caller holds a shared lock', async () => {
    const reading = await locks.hold('catalog:1', { mode: 'shared' });
    await expect(catalog.write(1)).resolves.toBeUndefined();
    await reading.release();
    await expect(catalog.write(1)).resolves.toBe('written');
  });

  describe('a call inside a shared lock', () => {
    const upgrade = {
      code: 'LOCK_UPGRADE',
      message:
        `"catalog:1" is not locked: the calling code asks for a lock in the mode 'exclusive', but already holds "catalog:1" in the ` +
        `mode 'shared', so the call would wait for itself. Lock with \`mode: 'exclusive'\` from the beginning if the call may ` +
        'write; or end the shared lock first, and read again under the new lock.',
    };

    test.each<[string, (id: number) => Promise<unknown>]>([
      ['a method with `onBusy: skip`', (id) => catalog.write(id)],
      ['a method with `reentrant`', (id) => catalog.writeInside(id)],
      ['`acquire`', () => service.acquire('catalog:1')],
      ['`tryAcquire`', () => service.tryAcquire('catalog:1')],
      ['`withLock`', () => service.withLock('catalog:1', { reentrant: true }, () => 'written')],
      ['a method inside another lock', (id) => service.withLock('other', () => catalog.write(id))],
    ])(
      'a call inside a shared lock rejects at once when it asks for an exclusive lock: %s',
      async (_name, write) => {
        await catalog.read(1, async () => {
          const started = performance.now();
          await expect(write(1)).rejects.toMatchObject(upgrade);
          // A call that waited for the readers would be refused after its timeout.
          expect(performance.now() - started).toBeLessThan(TIMEOUT_MS / 2);
          // The shared lock does not affect other keys.
          await expect(catalog.write(2)).resolves.toBe('written');
        });
        await expect(catalog.write(1)).resolves.toBe('written');
      },
    );

    test('a call inside a shared lock rejects when it asks for an exclusive lock on several keys, or for permits', async () => {
      await catalog.read(1, async () => {
        await expect(service.acquire(['catalog:0', 'catalog:1'])).rejects.toMatchObject({
          code: 'LOCK_UPGRADE',
          message: expect.stringMatching(
            /^"catalog:0", "catalog:1" is not locked: .* already holds "catalog:1" in the mode/,
          ),
        });
        await expect(service.acquire('catalog:1', { permits: 2 })).rejects.toMatchObject({
          code: 'LOCK_UPGRADE',
          message: expect.stringContaining('the calling code asks for a lock with `permits: 2`'),
        });
      });
    });

    test('a nested call can acquire an exclusive lock after the outer call has released its shared lock', async () => {
      await using writer = await service.withLock('catalog:1', { mode: 'shared' }, async (lock) => {
        await lock.release();
        return service.acquire('catalog:1');
      });
      expect(writer.isHeld()).toBe(true);
    });
  });

  test('nested calls for a shared lock, and then for an exclusive lock, join the outer exclusive lock', async () => {
    await service.withLock('catalog:1', async (outer) => {
      await expect(catalog.readInside(1)).resolves.toBe('exclusive');
      const nested = await catalog.readInside(1, () => catalog.writeInside(1));
      expect(nested).toBe('written');
      expect(outer.isHeld()).toBe(true);
    });
  });

  test('a shared lock inside an exclusive lock is refused with `heldByCaller: true` when `reentrant` is not set', async () => {
    await service.withLock('catalog:1', async () => {
      await expect(service.acquire('catalog:1', { ...once, mode: 'shared' })).rejects.toMatchObject({
        code: 'LOCK_HELD',
        heldByCaller: true,
      });
    });
  });

  test('concurrent nested calls for a shared lock join the outer shared lock, which stays held', async () => {
    await service.withLock('catalog:1', { mode: 'shared' }, async (outer) => {
      const modes = await Promise.all([catalog.readInside(1), catalog.readInside(1), catalog.readInside(1)]);
      expect(modes).toEqual(['shared', 'shared', 'shared']);
      expect(outer.isHeld()).toBe(true);
    });
  });

  test('a shared lock requires `minHold: 0` when the defaults of the module set a `minHold`', async () => {
    const other = await Test.createTestingModule({
      imports: [RedlockTestingModule.forRoot({ defaults: { minHold: 100 } })],
      providers: [Catalog],
    }).compile();
    await expect(other.get(Catalog).read(1, () => 1)).rejects.toThrow('so give `minHold: 0`');
    await expect(
      other.get(LockService).withLock('k', { mode: 'shared', minHold: 0 }, () => 'read'),
    ).resolves.toBe('read');
    await other.close();
  });
});

test('options of one call do not affect the next call, which may use another kind of lock', async () => {
  for (const [options, mode] of [
    [{}, 'exclusive'],
    [{ permits: 2 }, 'permits'],
    [{ mode: 'shared' }, 'shared'],
    [{}, 'exclusive'],
  ] as const) {
    await using lock = await service.acquire('k', { ...once, ...options });
    expect(lock.mode).toBe(mode);
  }
});
