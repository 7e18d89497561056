import { expect, test } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { LockService, WithLock } from '../../lib/index.js';
import { LogLines } from '../support/log-lines.js';
import { startApp } from '../support/nest-app.js';

@Injectable()
class Orders {
  @WithLock((id?: number) => `order:${id}`)
  async settle(_id?: number): Promise<string> {
    return 'settled';
  }

  @WithLock((order: object) => [`order:${String(order)}`, 'orders'])
  async cancel(_order: object): Promise<void> {}
}

async function warningsOf(use: (orders: Orders, locks: LockService) => Promise<void>): Promise<string[]> {
  const logger = new LogLines();
  const app = await startApp({ providers: [Orders] }, { nodes: 'memory' }, { logger });
  const before = logger.of('warn').length;
  await use(app.get(Orders), app.get(LockService));
  await app.close();
  return logger.of('warn').slice(before);
}

test('a computed key with a missing value locks, and is warned of once for each method', async () => {
  const warnings = await warningsOf(async (orders) => {
    await orders.settle(1);
    await expect(orders.settle()).resolves.toBe('settled');
    await orders.settle(NaN);
    await orders.cancel({});
    await orders.cancel({});
  });
  expect(warnings).toEqual([
    expect.stringMatching(
      /^Orders\.settle locks "order:undefined", where "undefined" probably stands for a missing value/,
    ),
    expect.stringMatching(/^Orders\.cancel locks "order:\[object Object\]", where /),
  ]);
});

test('a call of LockService with a missing value is warned of once for each label and each beginning of a key', async () => {
  const warnings = await warningsOf(async (_, locks) => {
    for (const key of ['order:null', 'order:undefined', 'invoice:NaN'])
      await locks.withLock(key, () => undefined);
    await locks.withLock('order:null', { label: 'orders' }, () => undefined);
    for (let count = 0; count < 200; count++) await locks.withLock(`${count}:undefined`, () => undefined);
  });
  expect(warnings.slice(0, 3)).toEqual([
    expect.stringMatching(/^LockService \(label "other"\) locks "order:null"/),
    expect.stringMatching(/^LockService \(label "other"\) locks "invoice:NaN"/),
    expect.stringMatching(/^LockService \(label "orders"\) locks "order:null"/),
  ]);
  expect(warnings).toHaveLength(100);
});
