import { channel } from 'node:diagnostics_channel';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { LOCK_STATE_CHANNEL } from '../../../lib/core/lock-events.js';
import { History } from '../../../lib/board/live/history.js';
import { ProcessEvents } from '../../../lib/board/live/process-events.js';
import { FORCE_RELEASE_CHANNEL } from '../../../lib/telemetry/force-release.js';
import { LOCK_SKIPPED_CHANNEL, type LockSkippedEvent } from '../../../lib/telemetry/lock-skipped.js';
import { LOCK_ACQUIRE_CHANNEL, LOCK_HOLD_CHANNEL } from '../../../lib/telemetry/lock-telemetry.events.js';
import { TICK_RAN_CHANNEL, type TickRanEvent } from '../../../lib/telemetry/tick-ran.js';

const OF_EACH_LOCK = [
  ...[LOCK_ACQUIRE_CHANNEL, LOCK_HOLD_CHANNEL].flatMap((name) => [
    `tracing:${name}:start`,
    `tracing:${name}:asyncEnd`,
  ]),
  LOCK_STATE_CHANNEL,
  FORCE_RELEASE_CHANNEL,
];

const TEN_MINUTES_MS = 10 * 60_000;

describe('ProcessEvents', () => {
  let history: History;
  let events: ProcessEvents;

  beforeEach(() => {
    jest.useFakeTimers();
    history = new History();
    events = new ProcessEvents('api:1', undefined, history);
  });
  afterEach(() => {
    events.stop();
    jest.useRealTimers();
  });

  function listensToLocks(): boolean[] {
    return [...new Set(OF_EACH_LOCK.map((name) => channel(name).hasSubscribers))];
  }

  function skip(): void {
    const event: LockSkippedEvent = {
      method: 'Clock.strike',
      label: 'clock',
      keys: ['clock'],
      mode: 'exclusive',
      reason: 'tick-ran',
      owner: 'api:2',
      tick: 1_000,
    };
    channel(LOCK_SKIPPED_CHANNEL).publish(event);
  }

  test('ProcessEvents records nothing before the first viewer comes', () => {
    expect(listensToLocks()).toEqual([false]);
    skip();
    expect(history.of('clock')).toEqual([]);
  });

  test('ProcessEvents records from the arrival of the first viewer until ten minutes after the last viewer left', () => {
    expect(events.record()).toBe(true);
    expect(listensToLocks()).toEqual([true]);
    skip();
    events.rest();
    jest.advanceTimersByTime(TEN_MINUTES_MS - 1_000);
    expect(listensToLocks()).toEqual([true]);
    expect(history.of('clock')).toHaveLength(1);
    expect(events.record()).toBe(false);
    jest.advanceTimersByTime(TEN_MINUTES_MS);
    expect(listensToLocks()).toEqual([true]);
    events.rest();
    jest.advanceTimersByTime(TEN_MINUTES_MS);
    expect(listensToLocks()).toEqual([false]);
    expect(history.of('clock')).toEqual([]);
    expect(events.record()).toBe(true);
  });

  test('ProcessEvents counts ticks even without a viewer', () => {
    const ran: TickRanEvent = { method: 'Clock.strike', keys: ['clock'], tick: 1_000 };
    channel(TICK_RAN_CHANNEL).publish(ran);
    channel(TICK_RAN_CHANNEL).publish({ ...ran, instance: 'another' });
    skip();
    expect(events.ticks).toEqual([
      {
        method: 'Clock.strike',
        key: 'clock',
        ran: 1,
        lastRun: { tick: 1_000, at: Date.now() },
        skipped: 1,
        lastSkip: { tick: 1_000, at: Date.now(), by: 'api:2' },
      },
    ]);
  });

  test('ProcessEvents counts the ticks of `LockService.oncePerTick` for each key', () => {
    for (const key of ['one', 'other', 'one']) channel(TICK_RAN_CHANNEL).publish({ keys: [key], tick: 0 });
    expect(events.ticks).toMatchObject([
      { method: 'oncePerTick("one")', key: 'one', ran: 2 },
      { method: 'oncePerTick("other")', key: 'other', ran: 1 },
    ]);
  });

  test('ProcessEvents records nothing after stop()', () => {
    events.record();
    events.stop();
    expect(listensToLocks()).toEqual([false]);
    expect(channel(LOCK_SKIPPED_CHANNEL).hasSubscribers).toBe(false);
  });
});
