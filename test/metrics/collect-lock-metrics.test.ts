import { channel } from 'node:diagnostics_channel';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { readFileSync } from 'node:fs';
import { register, Registry } from 'prom-client';
import { LockService, THREAD_CHANNEL, type ThreadEvent, WithLock } from '../../lib/index.js';
import { collectLockMetrics } from '../../lib/metrics/index.js';
import { RedlockTestingModule, TestLocks } from '../../lib/testing/index.js';
import { lockServiceToken } from '../../lib/service/lock-service-token.js';

@Injectable()
class Orders {
  @WithLock((id: number) => `order:${id}`)
  async settle(_id: number): Promise<void> {}

  @WithLock('report', { onBusy: 'skip' })
  async report(): Promise<void> {}
}

const locks = new TestLocks({ wait: false });
let registry: Registry;
let stop: () => void;
let module: TestingModule;
let service: LockService;

beforeEach(async () => {
  registry = new Registry();
  module = await Test.createTestingModule({
    imports: [RedlockTestingModule.forRoot({ locks })],
    providers: [Orders],
  }).compile();
  service = module.get(LockService);
});
afterEach(async () => {
  stop();
  await module.close();
  locks.reset();
});

interface Sample {
  readonly name: string;
  readonly labels: Record<string, unknown>;
  readonly value: number;
}

async function samples(name: string): Promise<Sample[]> {
  const metric = await registry.getSingleMetric(name)!.get();
  return metric.values.map((each) => ({
    name: 'metricName' in each ? String(each.metricName) : name,
    labels: each.labels,
    value: each.value,
  }));
}

async function valueOf(name: string, labels: Record<string, string>): Promise<number | undefined> {
  const base = name.replace(/_(count|sum)$/, '');
  const found = (await samples(base)).filter(
    (each) =>
      each.name === name && Object.entries(labels).every(([label, value]) => each.labels[label] === value),
  );
  expect(found.length).toBeLessThanOrEqual(1);
  return found[0]?.value;
}

const settle = { lock: 'Orders.settle', module: 'default' };

describe('collectLockMetrics', () => {
  beforeEach(() => {
    stop = collectLockMetrics({ registry });
  });

  test('collectLockMetrics counts acquisitions by the label of a lock, not by the key', async () => {
    await Promise.all([1, 2, 3].map((id) => module.get(Orders).settle(id)));
    await expect(valueOf('redlock_acquired_total', settle)).resolves.toBe(3);
    await expect(valueOf('redlock_wait_seconds_count', { ...settle, outcome: 'acquired' })).resolves.toBe(3);
    await expect(valueOf('redlock_hold_seconds_count', settle)).resolves.toBe(3);
    await expect(registry.metrics()).resolves.not.toContain('order:');
  });

  test('the gauge `redlock_held` contains the number of held locks', async () => {
    const lock = await service.acquire('a', { label: 'import' });
    const held = { lock: 'import', module: 'default' };
    await expect(valueOf('redlock_held', held)).resolves.toBe(1);
    await lock.release();
    await expect(valueOf('redlock_held', held)).resolves.toBe(0);
  });

  test('`redlock_held` has a label for the mode, and `redlock_permits_taken` counts taken permits', async () => {
    const other = { lock: 'other', module: 'default' };
    const reader = await service.acquire('r', { mode: 'shared' });
    const one = await service.acquire('p', { permits: 5 });
    const two = await service.acquire(['p', 'q'], { permits: 5 });
    await expect(valueOf('redlock_held', { ...other, mode: 'shared' })).resolves.toBe(1);
    await expect(valueOf('redlock_held', { ...other, mode: 'permits' })).resolves.toBe(2);
    await expect(valueOf('redlock_held', { ...other, mode: 'exclusive' })).resolves.toBeUndefined();
    await expect(valueOf('redlock_permits_taken', other)).resolves.toBe(3);
    await two.release();
    await expect(valueOf('redlock_permits_taken', other)).resolves.toBe(1);
    await Promise.all([reader.release(), one.release()]);
    await expect(valueOf('redlock_permits_taken', other)).resolves.toBe(0);
    await expect(valueOf('redlock_acquired_total', { ...other, mode: 'permits' })).resolves.toBe(2);
  });

  test('the lock metrics measure durations in seconds', async () => {
    await service.withLock('a', () => new Promise((resolve) => setTimeout(resolve, 50)));
    const sum = await valueOf('redlock_hold_seconds_sum', { lock: 'other', module: 'default' });
    expect(sum).toBeGreaterThan(0.04);
    // In milliseconds, the duration would be 50 or more.
    expect(sum).toBeLessThan(49);
  });

  test('the metrics count held, unavailable and aborted outcomes of acquisitions, and lost locks', async () => {
    const other = { lock: 'other', module: 'default' };
    const before = await service.acquire('a');
    await service.tryAcquire('a');
    await before.release();
    const undo = locks.fail();
    await service.tryAcquire('a').catch(() => undefined);
    undo();
    await service.acquire('a', { signal: AbortSignal.abort() }).catch(() => undefined);
    await service.acquire('a');
    locks.lose('a');
    // The event of the end of a hold comes in a later microtask.
    await Promise.resolve();
    const outcomes = (await samples('redlock_wait_seconds'))
      .filter(({ name }) => name === 'redlock_wait_seconds_count')
      .map(({ labels, value }) => [labels['outcome'], value]);
    expect(Object.fromEntries(outcomes)).toEqual({ acquired: 2, held: 1, unavailable: 1, aborted: 1 });
    for (const name of ['busy', 'unavailable', 'lost']) {
      await expect(valueOf(`redlock_${name}_total`, other)).resolves.toBe(1);
    }
    await expect(valueOf('redlock_held', other)).resolves.toBe(0);
    await expect(valueOf('redlock_node_errors_total', { node: 'memory' })).resolves.toBeGreaterThanOrEqual(1);
  });

  test('`redlock_node_errors_total` counts an extension that fails on a node', async () => {
    const lock = await service.acquire('a');
    await expect(valueOf('redlock_node_errors_total', { node: 'memory' })).resolves.toBeUndefined();
    const undo = locks.fail();
    await expect(lock.extend()).rejects.toThrow('fewer than a quorum of nodes confirmed the extension');
    undo();
    await expect(valueOf('redlock_node_errors_total', { node: 'memory' })).resolves.toBe(1);
    await lock.release();
  });

  test('`redlock_thread_failures_total` counts failures of the thread for renewals by their reason', async () => {
    const event: ThreadEvent = { instance: 'm', reason: 'unreachable', error: new Error('a test') };
    channel(THREAD_CHANNEL).publish(event);
    const labels = { module: 'm', reason: 'unreachable' };
    await expect(valueOf('redlock_thread_failures_total', labels)).resolves.toBe(1);
  });

  test('each counter of a lock starts at 0, so that Prometheus sees the first event', async () => {
    await module.get(Orders).settle(1);
    for (const name of ['busy', 'unavailable', 'lost']) {
      await expect(valueOf(`redlock_${name}_total`, settle)).resolves.toBe(0);
    }
  });

  test('`redlock_skipped_total` counts skipped calls by reason', async () => {
    await locks.hold('report');
    await module.get(Orders).report();
    const labels = { lock: 'report', module: 'default', reason: 'held' };
    await expect(valueOf('redlock_skipped_total', labels)).resolves.toBe(1);
  });

  test('the metrics of a named module have the name of the module as a label', async () => {
    const named = await Test.createTestingModule({
      imports: [RedlockTestingModule.forRoot({ locks, name: 'billing' })],
    }).compile();
    await named.get(lockServiceToken('billing')).withLock('a', () => undefined);
    await named.close();
    await expect(valueOf('redlock_acquired_total', { lock: 'other', module: 'billing' })).resolves.toBe(1);
  });

  test('`redlock_held` ignores a lock that was acquired before the collection began', async () => {
    stop();
    stop = () => undefined;
    const lock = await service.acquire('a');
    stop = collectLockMetrics({ registry });
    await lock.release();
    await expect(samples('redlock_held')).resolves.toEqual([]);
  });

  test('collectLockMetrics provides every metric and label that the Grafana dashboard uses', async () => {
    interface Dashboard {
      readonly title: string;
      readonly schemaVersion: number;
      readonly templating: {
        readonly list: readonly { readonly name: string; readonly definition?: string }[];
      };
      readonly panels: readonly {
        readonly id: number;
        readonly type: string;
        readonly gridPos: { readonly x: number; readonly w: number };
        readonly targets: readonly { readonly refId: string; readonly expr: string }[];
      }[];
    }
    const dashboard = JSON.parse(readFileSync('docs/grafana-dashboard.json', 'utf8')) as Dashboard;
    expect(dashboard).toMatchObject({ title: 'nestjs-redlock', schemaVersion: expect.any(Number) });
    const labelsOf = new Map(
      registry
        .getMetricsAsArray()
        .map((metric): [string, string[]] => [
          metric.name,
          (metric as unknown as { labelNames: string[] }).labelNames,
        ]),
    );
    const asked = new Set<string>();
    const check = (expression: string): void => {
      const names = expression.match(/redlock_\w+/g) ?? [];
      expect(names).not.toEqual([]);
      const known = names.map((name) =>
        labelsOf.has(name) ? name : name.replace(/_(bucket|sum|count)$/, ''),
      );
      for (const name of known) asked.add(name);
      expect([...labelsOf.keys()]).toEqual(expect.arrayContaining(known));
      const used = [...expression.matchAll(/(\w+)=~?"|by \(([^)]*)\)/g)].flatMap(([, label, by]) =>
        label === undefined ? by!.split(', ') : [label],
      );
      const allowed = known.flatMap((name) => labelsOf.get(name) ?? []);
      expect([...allowed, 'le']).toEqual(expect.arrayContaining(used));
    };
    const variables = dashboard.templating.list;
    for (const { definition } of variables) if (definition) check(definition);
    const used = new Set<string>();
    for (const { type, gridPos, targets } of dashboard.panels) {
      expect(['stat', 'timeseries']).toContain(type);
      expect(gridPos.x + gridPos.w).toBeLessThanOrEqual(24);
      for (const { expr } of targets) {
        check(expr);
        for (const [, name] of expr.matchAll(/\$(\w+)/g)) if (!name!.startsWith('__')) used.add(name!);
      }
    }
    expect([...used, 'datasource'].toSorted()).toEqual(variables.map(({ name }) => name).toSorted());
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
    // The dashboard shows every metric.
    expect([...asked].toSorted()).toEqual([...labelsOf.keys()].toSorted());
  });
});

test('collectLockMetrics keeps the first `maxLabels` labels, and counts all later labels as "other"', async () => {
  stop = collectLockMetrics({ registry, maxLabels: 2 });
  for (const label of ['a', 'b', 'c', 'd', 'a']) await service.withLock('key', { label }, () => undefined);
  const counts = (await samples('redlock_acquired_total')).map(({ labels, value }) => [
    labels['lock'],
    value,
  ]);
  expect(counts).toEqual([
    ['a', 2],
    ['b', 1],
    ['other', 2],
  ]);
});

test('collectLockMetrics returns a function that removes the metrics from the registry', async () => {
  stop = collectLockMetrics();
  expect(() => collectLockMetrics()).toThrow('already been registered');
  expect(register.getMetricsAsArray()).toHaveLength(12);
  stop();
  expect(register.getMetricsAsArray()).toEqual([]);
});

test('collectLockMetrics throws an error that names the invalid option', () => {
  expect(() => collectLockMetrics({ maxLabels: 0 })).toThrow('Expected `maxLabels`');
  for (const other of [{}, null, 'default'] as unknown as Registry[]) {
    const collect = (): unknown => collectLockMetrics({ registry: other });
    expect(collect).toThrow(TypeError);
    expect(collect).toThrow('Expected `registry` to be a Registry of prom-client');
  }
  expect(() => collectLockMetrics({ prefix: 'a' } as object)).toThrow('Unknown option `prefix`');
});
