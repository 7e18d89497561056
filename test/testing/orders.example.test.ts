// Copy this spec and put your own service in place of Orders. docs/testing.md shows this file.
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { currentLock, LockHeldError, LockLostError, LockUnavailableError, WithLock } from 'nestjs-redlock';
import { expectLocked, RedlockTestingModule, TestLocks } from 'nestjs-redlock/testing';

/** Another service, which the tests replace. */
@Injectable()
class Bank {
  async pay(_order: { id: number }): Promise<void> {}
}

@Injectable()
class Orders {
  constructor(private readonly bank: Bank) {}

  @WithLock((order: { id: number }) => `order:${order.id}`, { ttl: 9_000 })
  async settle(order: { id: number }): Promise<string> {
    await this.bank.pay(order);
    currentLock()?.assertHeld();
    return 'settled';
  }
}

describe('Orders', () => {
  // With `wait: false`, a test of a held lock takes no time.
  const locks = new TestLocks({ wait: false });
  const bank = { pay: jest.fn<Bank['pay']>() };
  let moduleRef: TestingModule;
  let orders: Orders;

  beforeEach(async () => {
    bank.pay.mockReset();
    moduleRef = await Test.createTestingModule({
      imports: [RedlockTestingModule.forRoot({ locks })],
      providers: [Orders, { provide: Bank, useValue: bank }],
    }).compile();
    orders = moduleRef.get(Orders);
  });

  afterEach(async () => {
    jest.useRealTimers();
    await moduleRef.close();
    locks.reset();
  });

  it('settle() holds a lock of the order', async () => {
    await orders.settle({ id: 7 });
    const { fencingToken } = expectLocked(locks, 'order:7', { method: 'Orders.settle', ttl: 9_000 });
    expect(fencingToken).toBeGreaterThan(0);
  });

  it('settle() does not pay while another process settles the order', async () => {
    const other = await locks.hold('order:7', { owner: 'instance-2' });
    await expect(orders.settle({ id: 7 })).rejects.toBeInstanceOf(LockHeldError);
    expect(bank.pay).not.toHaveBeenCalled();
    await other.release();
    await expect(orders.settle({ id: 7 })).resolves.toBe('settled');
  });

  it('settle() does not pay while Redis is down', async () => {
    const back = locks.fail();
    await expect(orders.settle({ id: 7 })).rejects.toBeInstanceOf(LockUnavailableError);
    expect(bank.pay).not.toHaveBeenCalled();
    back();
    await expect(orders.settle({ id: 7 })).resolves.toBe('settled');
  });

  it('settle() rejects if its lock was lost while the bank was slow', async () => {
    bank.pay.mockImplementation(async () => locks.lose('order:7'));
    await expect(orders.settle({ id: 7 })).rejects.toBeInstanceOf(LockLostError);
  });

  it('settle() keeps the lock for as long as the bank takes', async () => {
    jest.useFakeTimers();
    bank.pay.mockImplementation(() => new Promise((resolve) => setTimeout(resolve, 60_000)));
    const settled = orders.settle({ id: 7 });
    await jest.advanceTimersByTimeAsync(59_000);
    await expect(orders.settle({ id: 7 })).rejects.toBeInstanceOf(LockHeldError);
    await jest.advanceTimersByTimeAsync(1_000);
    await expect(settled).resolves.toBe('settled');
  });

  it('settle() of an order runs on only one of two instances at a time', async () => {
    const second = await Test.createTestingModule({
      imports: [RedlockTestingModule.forRoot({ locks })],
      providers: [Orders, { provide: Bank, useValue: bank }],
    }).compile();
    const both = [orders, second.get(Orders)].map((each) => each.settle({ id: 7 }));
    const results = await Promise.allSettled(both);
    expect(results.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
    await second.close();
  });
});
