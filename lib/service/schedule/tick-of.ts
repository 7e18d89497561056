import type { Tick } from '../../core/tick.js';
import { type CronTime, latestTick } from './cron-tick.js';

const MINUTE = 60_000;

/** The longest time for which nodes remember a tick, in milliseconds: 400 days, more than a yearly schedule needs. */
const LONGEST_GAP = 400 * 86_400_000;

/** Share of the interval by which a run may begin early, because timers and messages are not exact. */
const SOONER_SHARE = 0.1;
const SOONEST_MS = 1_000;

/** The kind of a schedule: a cron expression, or an interval in milliseconds. */
export type ScheduleKind = 'cron' | 'interval';

/** Name of a schedule, the same in every process. It distinguishes schedules that lock the same key. */
export function nameOfSchedule(of: string, kind: ScheduleKind): string {
  return `${kind}:${of}`;
}

/**
 * The tick of a call at `time`, in milliseconds since 1970.
 *
 * @param of - the name of the method or function that the schedule calls
 * @returns `undefined` when the schedule has had no moment yet
 */
export function cronTickOf(of: string, cronTime: CronTime, time: number): Tick | undefined {
  const tick = latestTick(cronTime, time);
  if (!tick) return undefined;
  // A late instance, such as one that was suspended, may fire for this tick until the next tick; the additional minute
  // allows for clocks that differ. The upper limit is for a schedule that fires once, at a date.
  const life = Math.min(tick.gap, LONGEST_GAP) + MINUTE;
  return { schedule: nameOfSchedule(of, 'cron'), at: tick.at, life, from: 'release' };
}

/**
 * The tick of a call of a schedule with an interval.
 *
 * @param of - the name of the method or function that the schedule calls
 */
export function intervalTickOf(of: string, milliseconds: number): Tick {
  return {
    schedule: nameOfSchedule(of, 'interval'),
    at: 0,
    // Instances start their intervals at different times, so they have no common moments: only the time since the last
    // run counts.
    life: milliseconds - Math.min(milliseconds * SOONER_SHARE, SOONEST_MS),
    from: 'acquisition',
  };
}
