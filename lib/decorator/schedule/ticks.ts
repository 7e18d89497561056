import type { ModulesContainer } from '@nestjs/core';
import type { Tick } from '../../core/tick.js';
import type { CronTime } from '../../service/schedule/cron-tick.js';
import { cronTickOf, intervalTickOf } from '../../service/schedule/tick-of.js';
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
    if (schedule.kind === 'interval') return intervalTickOf(name, schedule.milliseconds);
    const cronTime = this.#cronTimeOf(schedule.options);
    return cronTime && cronTickOf(name, cronTime, Date.now());
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

/** @throws TypeError unless the schedule has the same ticks in all instances */
export function checkTicks(
  method: string,
  schedule: Schedule | undefined,
): asserts schedule is Exclude<Schedule, { kind: 'timeout' }> {
  if (schedule && schedule.kind !== 'timeout') return;
  const found = schedule
    ? '@Timeout, whose delay begins at the start of each instance. Use `minHold` instead'
    : 'neither of them. In a job that code adds to the SchedulerRegistry, call `LockService.oncePerTick` with its schedule; ' +
      'elsewhere use `minHold`';
  throw new TypeError(
    `Expected \`oncePerTick\` in @WithLock on ${method} to be for a method with @Cron or @Interval of @nestjs/schedule, ` +
      `got a method with ${found}, a little less than the time between two runs`,
  );
}
