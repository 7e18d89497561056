import 'reflect-metadata';
import { beforeEach, expect, test } from '@jest/globals';
import { Injectable, Module } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { defineLocks, LockHeldError, LockService, RedlockModule, WithLock } from '../../lib/index.js';
import { expectLocked, RedlockTestingModule, TestLocks } from '../../lib/testing/index.js';

const locks = defineLocks({
  'order:settle': { key: (id: number) => `order:${id}`, ttl: 30_000 },
  'tenant:report': { key: (tenant: string) => `report:${tenant}`, permits: 2 },
  'order:audit': { key: (id: number) => `audit:${id}` },
});

@Injectable()
class Orders {
  @WithLock.of(locks['order:settle'])
  async settle(_id: number): Promise<string> {
    return 'settled';
  }
}

@Module({
  imports: [
    RedlockModule.forRoot({
      nodes: 'redis://127.0.0.1:1',
      locks,
      strict: true,
      overrides: { 'order:settle': { ttl: 20_000 } },
    }),
  ],
  providers: [Orders],
})
class AppModule {}

let held: TestLocks;
beforeEach(() => {
  held = new TestLocks({ wait: false });
});

async function compile(options: object = {}): Promise<TestingModule> {
  const imports = [RedlockTestingModule.forRoot({ locks: held, ...options })];
  return (await Test.createTestingModule({ imports, providers: [Orders] }).compile()).init();
}

test.each([[{}], [{ declared: locks, strict: true }]])(
  '`TestLocks.hold` and `expectLocked` accept declared locks when the module has the options %j',
  async (options) => {
    const module = await compile(options);
    const orders = module.get(Orders);
    const other = await held.hold(locks['order:settle'].for(42));
    await expect(orders.settle(42)).rejects.toThrow(LockHeldError);
    await other.release();
    await expect(orders.settle(42)).resolves.toBe('settled');
    expectLocked(held, locks['order:settle'].for(42), { method: 'Orders.settle', ttl: 30_000 });
    expectLocked(held, 'order:42', { label: 'order:settle' });
    expect(() => expectLocked(held, locks['order:audit'].for(42))).toThrow('Expected this lock');
  },
);

test('`TestLocks.hold` takes one permit of a declared lock', async () => {
  const service = (await compile()).get(LockService);
  await held.hold(locks['tenant:report'].for('acme'));
  await using lock = await service.acquire(locks['tenant:report'], 'acme');
  expect(lock.mode).toBe('permits');
  await expect(service.tryAcquire(locks['tenant:report'], 'acme')).resolves.toBeNull();
});

test('the options `strict` and `overrides` of an application also apply with `TestLocks`', async () => {
  const builder = Test.createTestingModule({ imports: [AppModule] });
  const module = await (await held.override(builder).compile()).init();
  await module.get(Orders).settle(1);
  expectLocked(held, locks['order:settle'].for(1), { ttl: 20_000 });
  await expect(module.get(LockService).acquire('plain')).rejects.toMatchObject({ code: 'LOCK_NOT_DECLARED' });
});
