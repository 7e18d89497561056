import { CronExpression } from '@nestjs/schedule';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { CronJob, CronTime } from 'cron';
import { type CronTime as Schedule, latestTick } from '../../../lib/service/schedule/cron-tick.js';

const HOUR = 3_600_000;
const DAY = 24 * HOUR;

interface Zone {
  readonly timeZone?: string;
  readonly utcOffset?: number;
}

function scheduleOf(source: string | Date, { timeZone, utcOffset }: Zone = { timeZone: 'UTC' }): Schedule {
  const schedule =
    utcOffset === undefined ? new CronTime(source, timeZone) : new CronTime(source, null, utcOffset);
  // The cast is needed because the type of cron has far more members than our own.
  return schedule as unknown as Schedule;
}

/** The tick of a call at `time`, and the hours from that tick to the next. */
function tickAt(
  expression: string,
  time: string | number,
  zone?: Zone,
): { readonly at: string; readonly hours: number } | undefined {
  const tick = latestTick(scheduleOf(expression, zone), new Date(time).getTime());
  return tick && { at: new Date(tick.at).toISOString().replace(':00.000Z', 'Z'), hours: tick.gap / HOUR };
}

describe('the latest tick', () => {
  test.each([
    ['0 9 * * *', '2026-03-02T09:00:00.000Z', '2026-03-02T09:00Z', 24],
    ['0 9 * * *', '2026-03-02T09:00:00.700Z', '2026-03-02T09:00Z', 24],
    ['0 9 * * *', '2026-03-03T08:59:59.900Z', '2026-03-02T09:00Z', 24],
    // A timer may fire a little early. Its call belongs to the moment for which the timer was set.
    ['0 9 * * *', '2026-03-03T08:59:59.980Z', '2026-03-03T09:00Z', 24],
    // The gaps are uneven: twice a day, and not at the weekend.
    ['0 9,17 * * 1-5', '2026-03-06T17:00:01Z', '2026-03-06T17:00Z', 64],
    ['0 9,17 * * 1-5', '2026-03-08T12:00:00Z', '2026-03-06T17:00Z', 64],
    ['0 9,17 * * 1-5', '2026-03-09T09:00:00Z', '2026-03-09T09:00Z', 8],
    ['0 0 29 2 *', '2026-06-01T00:00:00Z', '2024-02-29T00:00Z', (4 * 365 + 1) * 24],
    [CronExpression.EVERY_10_MINUTES, '2026-03-02T09:19:59Z', '2026-03-02T09:10Z', 1 / 6],
    [CronExpression.EVERY_1ST_DAY_OF_MONTH_AT_NOON, '2026-03-02T09:19:59Z', '2026-03-01T12:00Z', 31 * 24],
  ])('the latest tick of the schedule %s at %s is %s', (expression, time, at, hours) => {
    expect(tickAt(expression, time)).toEqual({ at, hours });
  });

  test('latestTick returns the same tick at all times between two ticks', () => {
    const start = Date.UTC(2026, 2, 2, 9);
    const every10s = scheduleOf('*/10 * * * * *');
    for (let late = 0; late < 9_950; late += 37) {
      expect(latestTick(every10s, start + late)).toEqual({ at: start, gap: 10_000 });
    }
  });

  test('latestTick supports a cron expression with a field for seconds', () => {
    const everySecond = scheduleOf('* * * * * *');
    const start = Date.UTC(2026, 2, 2, 9);
    for (const late of [-50, 0, 1, 500, 949]) {
      expect(latestTick(everySecond, start + late)).toEqual({ at: start, gap: 1_000 });
    }
    for (const early of [-51, -900]) expect(latestTick(everySecond, start + early)?.at).toBe(start - 1_000);
  });

  test('latestTick follows the time zone or the UTC offset of the schedule', () => {
    const time = '2026-07-01T12:00:00Z';
    expect(tickAt('30 13 * * *', time, { timeZone: 'Europe/Berlin' })?.at).toBe('2026-07-01T11:30Z');
    expect(tickAt('30 13 * * *', time, { timeZone: 'Asia/Kolkata' })?.at).toBe('2026-07-01T08:00Z');
    expect(tickAt('30 13 * * *', time, { timeZone: 'America/New_York' })?.at).toBe('2026-06-30T17:30Z');
    expect(tickAt('30 13 * * *', time, { utcOffset: 330 })?.at).toBe('2026-07-01T08:00Z');
    expect(tickAt('30 13 * * *', time, { utcOffset: -90 })?.at).toBe('2026-06-30T15:00Z');
  });

  const berlin = { timeZone: 'Europe/Berlin' };

  test('the tick of a daily time that the change to summer time skips is the end of the skipped hour', () => {
    expect(tickAt('30 2 * * *', '2026-03-29T01:00:00.005Z', berlin)).toEqual({
      at: '2026-03-29T01:00Z',
      hours: 23.5,
    });
    expect(tickAt('30 2 * * *', '2026-03-30T00:30:00.005Z', berlin)?.at).toBe('2026-03-30T00:30Z');
  });

  test('an hourly schedule has a different tick in each of the repeated hours in autumn', () => {
    const ticks = ['00:30', '01:30', '02:30'].map(
      (time) => tickAt('30 * * * *', `2026-10-25T${time}:00.005Z`, berlin)?.at,
    );
    // The local times are 2:30 in summer time, 2:30 in winter time, and 3:30.
    expect(ticks).toEqual(['2026-10-25T00:30Z', '2026-10-25T01:30Z', '2026-10-25T02:30Z']);
  });

  test('a daily time that is repeated in autumn has one tick, the first of the two times', () => {
    const first = { at: '2026-10-25T00:30Z', hours: 25 };
    for (const time of ['00:30:00.005', '01:29:59', '01:30:00.005', '23:00:00']) {
      expect(tickAt('30 2 * * *', `2026-10-25T${time}Z`, berlin)).toEqual(first);
    }
    expect(tickAt('30 2 * * *', '2026-10-26T01:30:00.005Z', berlin)?.at).toBe('2026-10-26T01:30Z');
    // On Lord Howe Island only half an hour is repeated.
    expect(tickAt('45 1 * * *', '2026-04-04T15:15:00.005Z', { timeZone: 'Australia/Lord_Howe' })?.at).toBe(
      '2026-04-04T14:45Z',
    );
  });

  describe('for a job that fires while the clocks change', () => {
    beforeEach(() => {
      jest.useFakeTimers();
    });
    afterEach(() => {
      jest.useRealTimers();
    });

    /**
     * Starts the same job at each of these times. Returns the moments at which each job fires, with their ticks, in UTC and
     * without seconds.
     */
    function fired(expression: string, zone: string, starts: readonly string[], hours: number): string[][] {
      return starts.map((start) => {
        jest.setSystemTime(new Date(start));
        const fires: string[] = [];
        const short = (time: number): string => new Date(time).toISOString().slice(8, 16);
        const job = CronJob.from({
          cronTime: expression,
          timeZone: zone,
          onTick: () => {
            const tick = latestTick(job.cronTime as unknown as Schedule, Date.now());
            fires.push(`${short(Date.now())} for ${tick ? short(tick.at) : 'none'}`);
          },
        });
        job.start();
        jest.advanceTimersByTime(hours * HOUR);
        void job.stop();
        return fires;
      });
    }

    test('latestTick returns the end of the skipped hour in spring, which is when the job fires', () => {
      expect(fired('30 2 * * *', 'Europe/Berlin', ['2026-03-28T12:00Z'], 48)).toEqual([
        ['29T01:00 for 29T01:00', '30T00:30 for 30T00:30'],
      ]);
      // An hourly job fires at the end of the skipped hour, and again half an hour later.
      expect(fired('30 * * * *', 'Europe/Berlin', ['2026-03-29T00:00Z'], 2)).toEqual([
        ['29T00:30 for 29T00:30', '29T01:00 for 29T01:00', '29T01:30 for 29T01:30'],
      ]);
      expect(fired('0 0 * * *', 'America/Santiago', ['2026-09-05T12:00Z'], 48)).toEqual([
        ['06T04:00 for 06T04:00', '07T03:00 for 07T03:00'],
      ]);
    });

    test('latestTick returns the first of two equal local times in autumn, even if the instance started between them', () => {
      const starts = ['2026-10-24T12:00Z', '2026-10-25T01:01Z'];
      expect(fired('30 2 * * *', 'Europe/Berlin', starts, 38)).toEqual([
        ['25T00:30 for 25T00:30', '26T01:30 for 26T01:30'],
        ['25T01:30 for 25T00:30', '26T01:30 for 26T01:30'],
      ]);
    });

    test('latestTick returns the time at which an hourly job fires in each of the repeated hours in autumn', () => {
      expect(fired('30 * * * *', 'Europe/Berlin', ['2026-10-25T00:00Z'], 3)).toEqual([
        ['25T00:30 for 25T00:30', '25T01:30 for 25T01:30', '25T02:30 for 25T02:30'],
      ]);
    });
  });

  test('latestTick returns the time at which a job fires, even on the days when the clocks change', () => {
    for (const day of ['2026-03-28T12:00:00Z', '2026-10-24T12:00:00Z']) {
      for (const expression of ['*/20 * * * *', '0 2,3 * * *', '15 1-4 * * *', '30 2 * * *']) {
        const schedule = scheduleOf(expression, berlin);
        const end = Date.parse(day) + DAY;
        let next = schedule.sendAt().minus(schedule.sendAt().toMillis() - Date.parse(day));
        while ((next = schedule.getNextDateFrom(next)).toMillis() < end) {
          expect(latestTick(schedule, next.toMillis() + 3)?.at).toBe(next.toMillis());
        }
      }
    }
  });

  test('latestTick returns the date of a job that is set for a single date, and undefined before that date', () => {
    const date = new Date(Date.now() + HOUR);
    const schedule = scheduleOf(date, {});
    expect(latestTick(schedule, date.getTime() + 5)).toEqual({ at: date.getTime(), gap: Infinity });
    expect(latestTick(schedule, date.getTime() - 1_000)).toBeUndefined();
  });
});
