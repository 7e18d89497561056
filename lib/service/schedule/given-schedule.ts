import { badOption, badValue, checkMilliseconds } from '../../core/checks.js';
import { printableText } from '../../core/printable.js';
import type { Tick } from '../../core/tick.js';
import type { CronTime } from './cron-tick.js';
import { cronTickOf, intervalTickOf } from './tick-of.js';

/** A cron expression, or the milliseconds of an interval. */
export type GivenSchedule = string | number;

type CronTimeClass = new (source: string, timeZone: string | null, utcOffset: null) => CronTime;

/** The name of the ticks of `LockService.oncePerTick`. A decorated method cannot have it: its name has a dot. */
const OF = 'oncePerTick';

const RULE =
  "a cron expression such as '0 9 * * 1-5', or the milliseconds of an interval, a whole number of at least 1";

/**
 * The tick of a call that is made now.
 *
 * @throws TypeError or RangeError when the schedule or the time zone is invalid; Error when there is a cron expression,
 * and the package `cron` cannot be loaded
 */
export async function tickOf(
  schedule: GivenSchedule,
  timeZone: string | undefined,
): Promise<Tick | undefined> {
  const time = Date.now();
  if (typeof schedule === 'number') {
    checkMilliseconds('schedule', schedule, 1, 'a cron expression, or ');
    if (timeZone !== undefined)
      throw badOption('timeZone', 'left out for an interval, which counts from the last run', timeZone);
    return intervalTickOf(OF, schedule);
  }
  if (typeof schedule !== 'string') throw badOption('schedule', RULE, schedule);
  if (timeZone !== undefined && (typeof timeZone !== 'string' || timeZone === ''))
    throw badTimeZone(timeZone);
  const Time = await cronTimeClass();
  try {
    return cronTickOf(OF, new Time(schedule, timeZone ?? null, null), time);
  } catch (error) {
    throw timeZone === undefined || !isExpression(Time, schedule)
      ? badExpression(schedule, error)
      : badTimeZone(timeZone);
  }
}

/** The package is loaded at the first cron expression, because it is optional. */
async function cronTimeClass(): Promise<CronTimeClass> {
  try {
    const { CronTime: Time } = await import('cron');
    return Time as unknown as CronTimeClass;
  } catch (cause) {
    throw new Error(
      '`oncePerTick` with a cron expression needs the package `cron`, which cannot be loaded. Install it ' +
        '(`npm install cron`), or give an interval in milliseconds, which needs no package',
      { cause },
    );
  }
}

/** `true` if the expression has ticks in the time zone of the process. */
function isExpression(Time: CronTimeClass, expression: string): boolean {
  try {
    new Time(expression, null, null).sendAt();
    return true;
  } catch {
    return false;
  }
}

function badExpression(expression: string, error: unknown): TypeError {
  // Some messages of the package go on with lines for its maintainers.
  const [why = ''] = (error as Error).message.split('\n');
  return new TypeError(`${badValue('`schedule`', RULE, expression).message}: ${printableText(why)}`);
}

function badTimeZone(timeZone: unknown): TypeError {
  return badOption('timeZone', "the name of a time zone, such as 'Europe/Berlin' or 'UTC+2'", timeZone);
}
