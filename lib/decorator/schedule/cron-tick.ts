/** A moment in the time zone of a schedule: a luxon `DateTime`, of which this much is needed. */
interface ZonedTime {
  toMillis(): number;
  /** Minutes that the zone is ahead of UTC at that moment. */
  readonly offset: number;
  /** Returns the moment that many milliseconds earlier, in the same zone. */
  minus(milliseconds: number): ZonedTime;
}

/** Members of `CronTime` of the package `cron` that this file uses, present in every version that @nestjs/schedule depends on. */
export interface CronTime {
  /** The expression, or the one moment of a schedule that was given a date. */
  readonly source: string | ZonedTime;
  /** The next moment from now on. */
  sendAt(): ZonedTime;
  /** The first moment after the second that `start` is in. */
  getNextDateFrom(start: ZonedTime): ZonedTime;
}

/** A moment that a schedule names, in milliseconds since 1970, and how long after it the next one is. */
export interface CronTick {
  readonly at: number;
  readonly gap: number;
}

/** A timer may fire so much before its time, by the wall clock, in milliseconds. */
const EARLY_MS = 50;

/** Milliseconds after the clocks were put back during which an hour may be repeated. */
const LONGEST_REPEAT = 3 * 3_600_000;

const SECOND = 1_000;
const LONGEST_LOOK_BACK = 8 * 366 * 86_400_000;

/**
 * The tick that a call made at `time` is for: the latest that the schedule names up to then. Every instance that fires
 * for a moment comes to the same number, whatever its clock says; one that fires so late that the next moment has come
 * is counted to that one. `undefined` when the schedule has not named any moment yet.
 */
export function latestTick(schedule: CronTime, time: number): CronTick | undefined {
  const limit = time + EARLY_MS;
  if (typeof schedule.source !== 'string') {
    const at = schedule.source.toMillis();
    return at <= limit ? { at, gap: Infinity } : undefined;
  }
  const anchor = schedule.sendAt();
  const inZone = (moment: number): ZonedTime => anchor.minus(anchor.toMillis() - moment);
  const nextAfter = (start: number): number => schedule.getNextDateFrom(inZone(start)).toMillis();

  // The library looks forward only. As a rule the tick is within the last second; else the way back is halved.
  let back = SECOND;
  while (nextAfter(limit - back) > limit) {
    back *= 2;
    if (back > LONGEST_LOOK_BACK) return undefined;
  }
  let from = limit - back;
  let to = limit - (back > SECOND ? back / 2 : 0);
  while (to - from > SECOND) {
    const middle = (from + to) / 2;
    if (nextAfter(middle) <= limit) from = middle;
    else to = middle;
  }
  const named = nextAfter(from);
  // When the clocks were put back, the library goes from the first 2:30 to the one of the next day. It returns the
  // second 2:30 only to an instance that was started between the two: that is the same tick.
  const repeated = (inZone(named - LONGEST_REPEAT).offset - inZone(named).offset) * 60_000;
  const first = named - repeated;
  const isSame = repeated > 0 && nextAfter(first - SECOND) === first && nextAfter(first) > named;
  const at = isSame ? first : named;
  return { at, gap: nextAfter(at) - at };
}
