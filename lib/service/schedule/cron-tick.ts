/** A moment in the time zone of a schedule: the members of a luxon `DateTime` that this file uses. */
interface ZonedTime {
  toMillis(): number;
  /** Minutes by which the time zone is ahead of UTC at this moment. */
  readonly offset: number;
  /** Returns the moment that is this many milliseconds earlier, in the same time zone. */
  minus(milliseconds: number): ZonedTime;
}

/**
 * Members of `CronTime` of the package `cron` that this file uses. Every version that @nestjs/schedule depends on has
 * them.
 */
export interface CronTime {
  /** The cron expression; for a schedule that fires once, at a date, the moment of that date. */
  readonly source: string | ZonedTime;
  /** Returns the next moment after the present. */
  sendAt(): ZonedTime;
  /** Returns the first moment of the schedule in a later second than `start`. */
  getNextDateFrom(start: ZonedTime): ZonedTime;
}

/** A moment of a schedule (`at`, in milliseconds since 1970), and the milliseconds until the next moment (`gap`). */
export interface CronTick {
  readonly at: number;
  readonly gap: number;
}

/** Milliseconds by which a timer may fire early, measured with the wall clock. */
const EARLY_MS = 50;

/** Milliseconds after a clock change in autumn within which a local time may occur for the second time. */
const LONGEST_REPEAT = 3 * 3_600_000;

const SECOND = 1_000;
const LONGEST_LOOK_BACK = 8 * 366 * 86_400_000;

/**
 * Finds the tick of a call at `time`: the latest moment of the schedule that is at most `EARLY_MS` after `time`. Every
 * instance that fires for one moment gets the same number, because the number comes from the cron expression and not
 * from the instance's clock. An instance may fire so late that the next moment has come; its call then belongs to that
 * next moment. `undefined` when the schedule has had no moment yet.
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

  // The package can only search forward. Usually the tick is within the last second. Otherwise step back in doubled
  // steps, and then halve the interval.
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
  // After the clock change in autumn 2:30 occurs twice. The package then goes from the first 2:30 to the 2:30 of the
  // next day. Only an instance that was started between the two gets the second 2:30 as its next moment. Count the
  // second 2:30 as the same tick.
  const repeated = (inZone(named - LONGEST_REPEAT).offset - inZone(named).offset) * 60_000;
  const first = named - repeated;
  const isSame = repeated > 0 && nextAfter(first - SECOND) === first && nextAfter(first) > named;
  const at = isSame ? first : named;
  return { at, gap: nextAfter(at) - at };
}
