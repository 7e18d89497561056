import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { context, SpanStatusCode, trace } from '@opentelemetry/api';
import { registerInstrumentations } from '@opentelemetry/instrumentation';
import {
  InMemorySpanExporter,
  NodeTracerProvider,
  type ReadableSpan,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-node';
import { readFileSync } from 'node:fs';
import { LockService, WithLock } from '../../lib/index.js';
import { RedlockTestingModule, TestLocks } from '../../lib/testing/index.js';
import { RedlockInstrumentation } from '../../lib/tracing/index.js';

const exporter = new InMemorySpanExporter();
const provider = new NodeTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
const tracer = provider.getTracer('test');

@Injectable()
class Orders {
  @WithLock((id: number) => `order:${id}`, { ttl: 4_000 })
  async settle(_id: number): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, 5));
    tracer.startSpan('query').end();
    await this.archive();
  }

  @WithLock('archive')
  async archive(): Promise<void> {
    tracer.startSpan('insert').end();
  }
}

const locks = new TestLocks({ wait: false });
const instrumentation = new RedlockInstrumentation();
let unregister: () => void;
let module: TestingModule;

beforeAll(() => {
  provider.register();
  unregister = registerInstrumentations({ tracerProvider: provider, instrumentations: [instrumentation] });
});
afterAll(async () => {
  unregister();
  await provider.shutdown();
  trace.disable();
  context.disable();
});
beforeEach(async () => {
  module = await Test.createTestingModule({
    imports: [RedlockTestingModule.forRoot({ locks })],
    providers: [Orders],
  }).compile();
});
afterEach(async () => {
  await module.close();
  locks.reset();
  exporter.reset();
});

function span(name: string): ReadableSpan {
  const found = exporter.getFinishedSpans().filter((each) => each.name === name);
  expect(found.map((each) => each.name)).toEqual([name]);
  return found[0]!;
}

function parentOf(name: string): string | undefined {
  const { parentSpanContext } = span(name);
  return exporter.getFinishedSpans().find((each) => each.spanContext().spanId === parentSpanContext?.spanId)
    ?.name;
}

test("`acquire` and `hold` spans are children of the caller's span, and spans of work under the lock are children of the `hold` span", async () => {
  await tracer.startActiveSpan('request', async (request) => {
    await module.get(Orders).settle(7);
    tracer.startSpan('after').end();
    request.end();
  });
  expect(parentOf('acquire Orders.settle')).toBe('request');
  expect(parentOf('hold Orders.settle')).toBe('request');
  expect(parentOf('query')).toBe('hold Orders.settle');
  expect(parentOf('acquire archive')).toBe('hold Orders.settle');
  expect(parentOf('hold archive')).toBe('hold Orders.settle');
  expect(parentOf('insert')).toBe('hold archive');
  expect(parentOf('after')).toBe('request');
});

test('spans have attributes with the keys of the lock and the outcome', async () => {
  await module.get(Orders).settle(7);
  const about = {
    'lock.keys': ['order:7'],
    'lock.label': 'Orders.settle',
    'lock.mode': 'exclusive',
    'lock.ttl': 4,
    'lock.fencing_token': expect.any(Number),
    'code.function.name': 'Orders.settle',
  };
  expect(span('acquire Orders.settle').attributes).toEqual({
    ...about,
    'lock.outcome': 'acquired',
    'lock.wait_time': expect.any(Number),
  });
  const hold = span('hold Orders.settle');
  expect(hold.attributes).toEqual({
    ...about,
    'lock.outcome': 'released',
    'lock.hold_time': expect.any(Number),
  });
  expect(hold.attributes['lock.hold_time']).toBeGreaterThan(0.003);
  expect(hold.status.code).toBe(SpanStatusCode.UNSET);
  expect(hold.instrumentationScope).toMatchObject({ name: 'nestjs-redlock' });
});

test('spans of permits have attributes with the number of permits of the key and with the taken slots', async () => {
  await locks.hold('stripe', { permits: 5 });
  exporter.reset();
  await module.get(LockService).withLock('stripe', { permits: 5, label: 'pay' }, () => undefined);
  expect(span('acquire pay').attributes).toMatchObject({
    'lock.mode': 'permits',
    'lock.permits': 5,
    'lock.slots': [1],
  });
  expect(span('hold pay').attributes).toMatchObject({ 'lock.mode': 'permits', 'lock.slots': [1] });
});

describe('the status of a span', () => {
  test('the status of a span is no error when another caller holds the lock', async () => {
    await locks.hold('order:7');
    exporter.reset();
    await module
      .get(Orders)
      .settle(7)
      .catch(() => undefined);
    const { attributes, status } = span('acquire Orders.settle');
    expect(attributes).toMatchObject({ 'lock.outcome': 'held', 'error.type': 'LOCK_HELD' });
    expect(status.code).toBe(SpanStatusCode.UNSET);
  });

  test('the status of a span is an error while Redis is down', async () => {
    locks.fail();
    await module
      .get(Orders)
      .settle(7)
      .catch(() => undefined);
    const { attributes, status, events } = span('acquire Orders.settle');
    expect(attributes).toMatchObject({ 'lock.outcome': 'unavailable', 'error.type': 'LOCK_UNAVAILABLE' });
    expect(status.code).toBe(SpanStatusCode.ERROR);
    expect(events.map(({ name }) => name)).toEqual(['exception']);
  });

  test('the status of a span is an error when the lock is lost', async () => {
    const lock = await module.get(LockService).acquire('a', { label: 'import' });
    locks.lose('a');
    await lock.release();
    const { attributes, status } = span('hold import');
    expect(attributes).toMatchObject({ 'lock.outcome': 'lost', 'error.type': 'LOCK_LOST' });
    expect(status.code).toBe(SpanStatusCode.ERROR);
  });

  test('the status of a span is no error when the caller aborts the acquisition', async () => {
    const signal = AbortSignal.abort(new Error('enough'));
    await module
      .get(LockService)
      .acquire('a', { label: 'import', signal })
      .catch(() => undefined);
    const { attributes, status } = span('acquire import');
    expect(attributes).toMatchObject({ 'lock.outcome': 'aborted', 'error.type': 'aborted' });
    expect(status.code).toBe(SpanStatusCode.UNSET);
  });
});

test('`RedlockInstrumentation` leaves keys out of spans if `keys` is false, and makes no spans while disabled', async () => {
  instrumentation.setConfig({ keys: false });
  await module.get(Orders).archive();
  expect(span('hold archive').attributes).not.toHaveProperty('lock.keys');
  instrumentation.setConfig({});
  exporter.reset();

  instrumentation.disable();
  expect(instrumentation.getConfig()).toMatchObject({ enabled: false });
  await module.get(Orders).archive();
  expect(exporter.getFinishedSpans().map(({ name }) => name)).toEqual(['insert']);
  instrumentation.enable();
  instrumentation.enable();
  await module.get(Orders).archive();
  expect(span('hold archive').ended).toBe(true);
});

test('`RedlockInstrumentation` throws errors that name invalid options, and has the version of the package', () => {
  expect(() => new RedlockInstrumentation({ keys: 1 } as never)).toThrow('Expected `keys`');
  expect(() => new RedlockInstrumentation({ key: true } as never)).toThrow('Unknown option `key`');
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { version: string };
  expect(instrumentation.instrumentationVersion).toBe(version);
});
