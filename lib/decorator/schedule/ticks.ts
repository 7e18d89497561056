import type { ModulesContainer } from '@nestjs/core';
import { type CronTime, latestTick } from './cron-tick.js';
import type { Tick } from '../../core/tick.js';
import type { CronOptions, Schedule, ScheduledTask } from './schedule-metadata.js';

/** A registered job of @nestjs/schedule. */
interface CronJob {
  readonly cronTime: CronTime;
}

/** Members of the class `SchedulerRegistry` of @nestjs/schedule that this file uses. */
interface SchedulerRegistry {
  getCronJobs(): Map<string, CronJob>;
}

type CronTimeClass = new (source: unknown, timeZone: string | null, utcOffset: number | null) => CronTime;

const MINUTE = 60_000;

/** The longest time for which nodes remember a tick, in milliseconds: 400 days, more than a yearly schedule needs. */
const LONGEST_GAP = 400 * 86_400_000;

/** Share of the interval by which a run may begin early, because timers and messages are not exact. */
const SOONER_SHARE = 0.1;
const SOONEST_MS = 1_000;

/** Finds the tick for which a method is called. */
export class Ticks {
  #registry: SchedulerRegistry | undefined;
  readonly #cronTimes = new WeakMap<CronOptions, CronTime>();

  constructor(private readonly modules: ModulesContainer) {}

  /**
   * Returns the tick of a call that is made now; `undefined` when this process runs no scheduler: then the application
   * itself made the call.
   *
   * @throws TypeError when the method has no schedule with the same ticks in all instances
   */
  of({ name, schedule }: ScheduledTask): Tick | undefined {
    checkTicks(name, schedule);
    if (schedule.kind === 'interval') {
      const { milliseconds } = schedule;
      return {
        schedule: nameOfSchedule(name, schedule),
        at: 0,
        // Instances start their intervals at different times, so they have no common moments: only the time since the
        // last run counts.
        life: milliseconds - Math.min(milliseconds * SOONER_SHARE, SOONEST_MS),
        from: 'acquisition',
      };
    }
    const cronTime = this.#cronTimeOf(schedule.options);
    const tick = cronTime && latestTick(cronTime, Date.now());
    if (!tick) return undefined;
    // A late instance, such as one that was suspended, may fire for this tick until the next tick; the additional minute
    // allows for clocks that differ. The upper limit is for a schedule that fires once, at a date.
    const life = Math.min(tick.gap, LONGEST_GAP) + MINUTE;
    return { schedule: nameOfSchedule(name, schedule), at: tick.at, life, from: 'release' };
  }

  /**
   * Returns the `CronTime` of the registered job with the name in the options. The job of a schedule without a name
   * cannot be found, so the `CronTime` is then made from the options, with the class of any registered job: this
   * package cannot always import the package `cron`.
   */
  #cronTimeOf(options: CronOptions): CronTime | undefined {
    const jobs = this.#jobs();
    const named = options.name === undefined ? undefined : jobs?.get(options.name)?.cronTime;
    if (named) return named;
    const known = this.#cronTimes.get(options);
    if (known) return known;
    const [any] = jobs?.values() ?? [];
    if (!any) return undefined;
    const { cronTime, timeZone = null, utcOffset = null } = options;
    const made = new (any.cronTime.constructor as CronTimeClass)(cronTime, timeZone, utcOffset);
    this.#cronTimes.set(options, made);
    return made;
  }

  /** Finds the registry by its methods: its class may be minified, or come from another copy of the package. */
  #jobs(): Map<string, CronJob> | undefined {
    if (!this.#registry) {
      const providers = [...this.modules.values()].flatMap((module) => [...module.providers.values()]);
      const registry = providers.find(({ metatype }) => {
        const prototype = metatype?.prototype as { getCronJobs?: unknown } | undefined;
        return typeof prototype?.getCronJobs === 'function';
      });
      this.#registry = registry?.instance as SchedulerRegistry | undefined;
    }
    return this.#registry?.getCronJobs();
  }
}

/** Name of a schedule, the same in every process. It distinguishes schedules that lock the same key. */
export function nameOfSchedule(method: string, { kind }: Schedule): string {
  return `${kind}:${method}`;
}

/** @throws TypeError unless the schedule has the same ticks in all instances */
export function checkTicks(
  method: string,
  schedule: Schedule | undefined,
): asserts schedule is Exclude<Schedule, { kind: 'timeout' }> {
  if (schedule && schedule.kind !== 'timeout') return;
  const found = schedule
    ? '@Timeout, whose delay begins at the start of each instance'
    : 'neither of them (a job that is added to the SchedulerRegistry is not visible on the method)';
  throw new TypeError(
    `Expected \`oncePerTick\` in @WithLock on ${method} to be for a method with @Cron or @Interval of @nestjs/schedule, ` +
      `got a method with ${found}. Use \`minHold\` instead, a little less than the time between two runs`,
  );
}
