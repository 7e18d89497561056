import 'reflect-metadata';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { Test, type TestingModule } from '@nestjs/testing';
import { once } from 'node:events';
import { Registry } from 'prom-client';
import {
  Leader,
  type LeaderTerm,
  type Leadership,
  LockLostError,
  LockService,
  OnlyLeader,
} from '../../lib/index.js';
import { collectLockMetrics } from '../../lib/metrics/index.js';
import { RedlockTestingModule, TestLocks } from '../../lib/testing/index.js';
import { until } from '../support/until.js';

class Consumer {
  readonly ends: unknown[] = [];

  @Leader('consumer')
  async lead({ signal }: LeaderTerm): Promise<void> {
    await once(signal, 'abort');
    this.ends.push(signal.reason);
  }

  @OnlyLeader('consumer')
  async sweep(): Promise<string | undefined> {
    return 'swept';
  }
}

describe('the leadership of an application with TestLocks', () => {
  let locks: TestLocks;
  let module: TestingModule;
  let consumer: Consumer;
  let leadership: Leadership;
  const registry = new Registry();
  let stop: () => void;

  beforeEach(async () => {
    stop = collectLockMetrics({ registry });
    locks = new TestLocks();
    module = await Test.createTestingModule({
      imports: [RedlockTestingModule.forRoot({ locks })],
      providers: [Consumer],
    }).compile();
    consumer = module.get(Consumer);
    leadership = module.get(LockService).leader('consumer');
  });
  afterEach(async () => {
    await module.close();
    stop();
  });

  const isLeader = async (): Promise<unknown> => {
    const { values } = await registry.getSingleMetric('redlock_is_leader')!.get();
    return values.map(({ value, labels }) => ({ ...labels, value }));
  };

  test('with `TestLocks`, an application leads after its start, and leads again after a loss of the leadership', async () => {
    await module.init();
    await until(() => leadership.isLeader());
    expect(await isLeader()).toEqual([{ leader: 'consumer', module: 'default', value: 1 }]);
    locks.lose('leader:consumer');
    expect(leadership.isLeader()).toBe(false);
    await until(() => leadership.isLeader());
    expect(consumer.ends).toEqual([expect.any(LockLostError)]);
  });

  test('with `TestLocks`, an application does not lead while another process leads', async () => {
    const other = await locks.lead('consumer', { owner: 'instance-2' });
    await module.init();
    expect(await leadership.current()).toMatchObject({ owner: 'instance-2' });
    expect(await consumer.sweep()).toBeUndefined();
    expect(await isLeader()).toEqual([{ leader: 'consumer', module: 'default', value: 0 }]);
    await other.release();
    await until(() => leadership.isLeader());
    expect(await consumer.sweep()).toBe('swept');
  });

  test('with `TestLocks`, an application stops leading when another process becomes the leader', async () => {
    await module.init();
    await until(() => leadership.isLeader());
    const other = await locks.lead('consumer');
    await until(() => consumer.ends.length === 1);
    expect(consumer.ends).toEqual([expect.any(LockLostError)]);
    expect(await leadership.current()).toMatchObject({ owner: 'another process' });
    expect(leadership.isLeader()).toBe(false);
    await expect(locks.lead('consumer')).rejects.toMatchObject({ code: 'LOCK_HELD' });
    await other.release();
    await until(() => leadership.isLeader());
  });

  test.each([
    [() => locks.lead(''), "Expected `name` to be a string that is not empty, got ''"],
    [() => locks.lead('a', { permits: 2 } as never), 'Unknown option `permits` in `lead`'],
  ])('`TestLocks.lead` rejects invalid arguments (case %#)', async (call, message) => {
    await expect(call()).rejects.toThrow(message);
  });
});
