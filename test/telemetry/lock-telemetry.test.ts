import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { channel, subscribe, tracingChannel, unsubscribe } from 'node:diagnostics_channel';
import {
  currentLock,
  LOCK_ACQUIRE_CHANNEL,
  LOCK_HOLD_CHANNEL,
  LOCK_RELEASE_CHANNEL,
  LOCK_SKIPPED_CHANNEL,
  LOCK_STATE_CHANNEL,
  type LockAcquireEvent,
  type LockEvent,
  LockHeldError,
  type LockHoldEvent,
  type LockReleaseEvent,
  type LockStateEvent,
  LockLostError,
  LockService,
  NODE_ERROR_CHANNEL,
  WithLock,
} from '../../lib/index.js';
import { RedlockTestingModule, type RedlockTestingOptions, TestLocks } from '../../lib/testing/index.js';
import { LogLines } from '../support/log-lines.js';
import { lockServiceToken } from '../../lib/service/lock-service-token.js';

@Injectable()
class Orders {
  @WithLock((id: number) => `order:${id}`, { ttl: 4_000 })
  async settle(_id: number): Promise<string | undefined> {
    await new Promise((resolve) => setTimeout(resolve, 20));
    return currentLock()?.id;
  }

  @WithLock('report', { onBusy: 'skip' })
  async report(): Promise<void> {}

  @WithLock('outer')
  async outer(): Promise<void> {
    await this.inner();
  }

  @WithLock('outer', { reentrant: true })
  async inner(): Promise<void> {}
}

const log = new LogLines();
const stops: (() => void)[] = [];
let locks: TestLocks;
let module: TestingModule;

async function start(options: RedlockTestingOptions = {}): Promise<void> {
  locks = new TestLocks({ wait: false });
  module = await Test.createTestingModule({
    imports: [RedlockTestingModule.forRoot({ ...options, locks })],
    providers: options.name === undefined ? [Orders] : [],
  })
    .setLogger(log)
    .compile();
}

afterEach(async () => {
  for (const stop of stops.splice(0)) stop();
  log.lines.length = 0;
  locks.reset();
  await module.close();
});

/** Records the events on a tracing channel, in order. */
function trace<Event extends object>(name: string): [point: string, event: Event][] {
  const told: [string, Event][] = [];
  const traced = tracingChannel<unknown, Event>(name);
  const points = ['start', 'end', 'asyncStart', 'asyncEnd', 'error'] as const;
  const subscribers = Object.fromEntries(
    points.map((point) => [point, (event: Event) => void told.push([point, event])]),
  ) as never;
  traced.subscribe(subscribers);
  stops.push(() => traced.unsubscribe(subscribers));
  return told;
}

describe('the diagnostics channels', () => {
  beforeEach(() => start());

  test('a diagnostics channel publishes the same event object from the start to the end of an acquisition', async () => {
    const told = trace<LockAcquireEvent>(LOCK_ACQUIRE_CHANNEL);
    await module.get(Orders).settle(7);
    expect(told.map(([point]) => point)).toEqual(['start', 'end', 'asyncStart', 'asyncEnd']);
    const [[, event]] = told as [[string, LockAcquireEvent]];
    expect(told.every(([, each]) => each === event)).toBe(true);
    expect(event).toMatchObject({
      keys: ['order:7'],
      label: 'Orders.settle',
      method: 'Orders.settle',
      ttl: 4_000,
      waited: expect.any(Number),
      fencingToken: expect.any(Number),
    });
    expect(event).not.toHaveProperty('instance');
  });

  test('a diagnostics channel publishes the error of a failed acquisition', async () => {
    await locks.hold('order:7');
    const told = trace<LockAcquireEvent>(LOCK_ACQUIRE_CHANNEL);
    await expect(module.get(Orders).settle(7)).rejects.toBeInstanceOf(LockHeldError);
    expect(told.map(([point]) => point)).toEqual(['start', 'end', 'error', 'asyncStart', 'asyncEnd']);
    expect(told.at(-1)?.[1]).toMatchObject({ error: expect.any(LockHeldError), waited: expect.any(Number) });
  });

  test('a diagnostics channel traces a lock of `LockService` from its acquisition to its release', async () => {
    const told = trace<LockHoldEvent>(LOCK_HOLD_CHANNEL);
    const lock = await module.get(LockService).acquire('a', { label: 'import', ttl: 3_000 });
    expect(told.map(([point]) => point)).toEqual(['start', 'end']);
    await lock.release();
    expect(told.map(([point]) => point)).toEqual(['start', 'end', 'asyncStart', 'asyncEnd']);
    const { id, fencingToken } = lock;
    expect(told.at(-1)?.[1]).toMatchObject({ keys: ['a'], label: 'import', id, fencingToken, ttl: 3_000 });
    const before = told.at(-1)![1].heldFor!;
    expect(before).toBeGreaterThanOrEqual(0);
  });

  test('a diagnostics channel publishes the error of a lost lock, and publishes the end of the lock only once', async () => {
    const told = trace<LockHoldEvent>(LOCK_HOLD_CHANNEL);
    const lock = await module.get(LockService).acquire('a');
    locks.lose('a');
    await lock.release();
    expect(told.map(([point]) => point)).toEqual(['start', 'end', 'error', 'asyncStart', 'asyncEnd']);
    expect(told.at(-1)?.[1]).toMatchObject({ error: expect.any(LockLostError) });
  });

  test('the diagnostics channels publish the slots of permits and the mode of shared locks', async () => {
    const acquired = trace<LockAcquireEvent>(LOCK_ACQUIRE_CHANNEL);
    const held = trace<LockHoldEvent>(LOCK_HOLD_CHANNEL);
    const released = trace<LockReleaseEvent>(LOCK_RELEASE_CHANNEL);
    const states: LockStateEvent[] = [];
    const keep = (event: unknown): void => void states.push(event as LockStateEvent);
    subscribe(LOCK_STATE_CHANNEL, keep);
    stops.push(() => unsubscribe(LOCK_STATE_CHANNEL, keep));
    await locks.hold('a', { permits: 3 });
    const service = module.get(LockService);
    const asked = acquired.length;
    const [before, begun, given] = [held.length, states.length, released.length];
    await (await service.acquire('a', { permits: 3 })).release();
    await (await service.acquire(['a', 'b'], { permits: 3 })).release();
    await (await service.acquire('c', { mode: 'shared' })).release();
    const one = { mode: 'permits', slot: 1, slots: [1] };
    const two = { mode: 'permits', slots: [1, 0] };
    const shared = { mode: 'shared' };
    const ends = <Event>(told: [string, Event][]): Event[] =>
      told.filter(([point]) => point === 'asyncEnd').map(([, event]) => event);
    const pick = (event: object): object => {
      const { mode, slot, slots } = event as LockHoldEvent;
      return { mode, ...(slot === undefined ? {} : { slot }), ...(slots === undefined ? {} : { slots }) };
    };
    expect(ends(acquired.slice(asked)).map(pick)).toEqual([one, two, shared]);
    expect(ends(acquired.slice(asked)).map(({ permits }) => permits)).toEqual([3, 3, undefined]);
    expect(ends(held.slice(before)).map(pick)).toEqual([one, two, shared]);
    expect(ends(released.slice(given)).map(pick)).toEqual([one, two, shared]);
    expect(states.slice(begun).map(pick)).toEqual([one, two, shared]);
  });

  test('the diagnostics channels publish a lock only once when a reentrant method joins the lock', async () => {
    const acquired = trace(LOCK_ACQUIRE_CHANNEL);
    const held = trace(LOCK_HOLD_CHANNEL);
    await module.get(Orders).outer();
    expect([acquired, held].map((told) => told.filter(([point]) => point === 'start').length)).toEqual([
      1, 1,
    ]);
  });

  test('a diagnostics channel publishes a release from its start to its confirmation', async () => {
    const told = trace(LOCK_RELEASE_CHANNEL);
    const lock = await module.get(LockService).acquire('a');
    const { id, fencingToken } = lock;
    await lock.release();
    await lock.release();
    expect(told.map(([point]) => point)).toEqual(['start', 'end', 'asyncStart', 'asyncEnd']);
    expect(told[0]?.[1]).toMatchObject({ keys: ['a'], id, fencingToken });
  });

  test('the function `around` runs once for an acquisition and once for the work under the lock, and not for a method that joins the lock', async () => {
    const inside: string[] = [];
    for (const name of [LOCK_ACQUIRE_CHANNEL, LOCK_HOLD_CHANNEL]) {
      const begin = (event: unknown): void => {
        (event as LockHoldEvent).around = (task) => {
          inside.push(name);
          return task();
        };
      };
      subscribe(`tracing:${name}:start`, begin);
      stops.push(() => void unsubscribe(`tracing:${name}:start`, begin));
    }
    await module.get(Orders).outer();
    expect(inside).toEqual([LOCK_ACQUIRE_CHANNEL, LOCK_HOLD_CHANNEL]);
  });

  test('a diagnostics channel publishes the error of a node that gives no answer', async () => {
    const errors: unknown[] = [];
    const keep = (event: unknown): void => void errors.push(event);
    subscribe(NODE_ERROR_CHANNEL, keep);
    stops.push(() => void unsubscribe(NODE_ERROR_CHANNEL, keep));
    locks.fail({ error: new Error('down') });
    await module
      .get(LockService)
      .tryAcquire('a')
      .catch(() => undefined);
    expect(errors).toContainEqual({ node: 'memory', error: expect.objectContaining({ message: 'down' }) });
  });

  test('the library subscribes to the channel of lock states only until the lock is released', async () => {
    const hold = trace(LOCK_HOLD_CHANNEL);
    const lock = await module.get(LockService).acquire('a');
    expect(channel(LOCK_STATE_CHANNEL).hasSubscribers).toBe(true);
    await lock.release();
    expect(hold).toHaveLength(4);
    expect(channel(LOCK_STATE_CHANNEL).hasSubscribers).toBe(false);
  });
});

describe('onEvent', () => {
  test('`onEvent` receives the events of locks of its own module, and of no other module', async () => {
    const events: LockEvent[] = [];
    await start({ onEvent: (event) => events.push(event), name: 'billing' });
    const other = new TestLocks();
    const elsewhere = await Test.createTestingModule({
      imports: [RedlockTestingModule.forRoot({ locks: other })],
    }).compile();
    const far = await elsewhere.get(LockService).acquire('far');
    const service = module.get(lockServiceToken('billing'));
    await service.withLock('a', { label: 'task' }, () => undefined);
    const lock = await service.acquire('b');
    locks.lose('b');
    await locks.hold('c', { instance: 'billing' });
    await service.tryAcquire('c');
    await far.release();
    await elsewhere.close();
    await lock.release();

    const about = { label: 'other', instance: 'billing', mode: 'exclusive' };
    expect(events).toEqual([
      { type: 'acquired', keys: ['a'], ...about, label: 'task', ...granted(), waited: expect.any(Number) },
      { type: 'released', keys: ['a'], ...about, label: 'task', ...granted(), heldFor: expect.any(Number) },
      { type: 'acquired', keys: ['b'], ...about, ...granted(), waited: expect.any(Number) },
      {
        type: 'lost',
        keys: ['b'],
        ...about,
        ...granted(),
        heldFor: expect.any(Number),
        error: expect.any(LockLostError),
      },
      {
        type: 'refused',
        keys: ['c'],
        ...about,
        waited: expect.any(Number),
        error: expect.any(LockHeldError),
      },
    ]);
  });

  test('`onEvent` receives skipped calls and failed renewals', async () => {
    const events: LockEvent[] = [];
    await start({ onEvent: (event) => events.push(event) });
    const skipped: unknown[] = [];
    const keep = (event: unknown): void => void skipped.push(event);
    subscribe(LOCK_SKIPPED_CHANNEL, keep);
    stops.push(() => void unsubscribe(LOCK_SKIPPED_CHANNEL, keep));
    await locks.hold('report', { owner: 'other' });
    await module.get(Orders).report();
    const skip = {
      method: 'Orders.report',
      label: 'report',
      keys: ['report'],
      reason: 'held',
      owner: 'other',
    };
    expect(events.at(-1)).toMatchObject({ type: 'skipped', ...skip });
    expect(skipped).toEqual([expect.objectContaining(skip)]);

    const lock = await module.get(LockService).acquire('a');
    locks.fail({ on: 'extend' });
    await expect(lock.extend()).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    expect(events.at(-1)).toMatchObject({
      type: 'unconfirmed',
      keys: ['a'],
      id: lock.id,
      error: expect.any(Error),
    });
    await lock.release();
  });

  test.each([
    [
      'throws',
      () => {
        throw new Error('broken');
      },
    ],
    ['rejects', () => Promise.reject(new Error('broken'))],
  ])('a locked method still succeeds when `onEvent` %s, and the error is logged', async (_how, onEvent) => {
    await start({ onEvent });
    await expect(module.get(Orders).settle(7)).resolves.toEqual(expect.any(String));
    // Jest fails the test when a rejection stays unhandled for a turn of the event loop.
    await new Promise((resolve) => setImmediate(resolve));
    expect(log.of('error')).toEqual([
      "onEvent failed for 'acquired': Error: broken",
      "onEvent failed for 'released': Error: broken",
    ]);
  });

  test('`onEvent` must be a function', async () => {
    await start();
    const onEvent = 'log' as never;
    expect(() => RedlockTestingModule.forRoot({ onEvent })).toThrow(
      "Expected `onEvent` to be a function, got 'log'",
    );
  });
});

function granted(): { id: string; fencingToken: number } {
  return { id: expect.any(String) as never, fencingToken: expect.any(Number) as never };
}
