import 'reflect-metadata';

/** Metadata that a decorator of @nestjs/schedule sets on a method. */
export type Schedule =
  | { readonly kind: 'cron'; readonly options: CronOptions }
  | { readonly kind: 'interval'; readonly milliseconds: number }
  | { readonly kind: 'timeout' };

/** A method of an object, with its schedule if it has one. */
export interface ScheduledTask {
  /** The names of the object's class and of the method. Each subclass that inherits a method has its own schedule. */
  readonly name: string;
  readonly schedule: Schedule | undefined;
}

/** The options of `@Cron` that decide when the schedule fires. */
export interface CronOptions {
  readonly cronTime: unknown;
  readonly name?: string;
  readonly timeZone?: string;
  readonly utcOffset?: number;
}

// These names are copied, because an import would need @nestjs/schedule in applications without schedules.
const TYPE = 'SCHEDULER_TYPE';
const CRON = 1;
const TIMEOUT = 2;
const INTERVAL = 3;

/** Returns the schedule of a method; `undefined` when `method` is no function or has no schedule. */
export function scheduleOf(method: unknown): Schedule | undefined {
  if (typeof method !== 'function') return undefined;
  switch (Reflect.getMetadata(TYPE, method) as unknown) {
    case CRON:
      return { kind: 'cron', options: Reflect.getMetadata('SCHEDULE_CRON_OPTIONS', method) as CronOptions };
    case INTERVAL: {
      const { timeout } = Reflect.getMetadata('SCHEDULE_INTERVAL_OPTIONS', method) as { timeout: number };
      return { kind: 'interval', milliseconds: timeout };
    }
    case TIMEOUT:
      return { kind: 'timeout' };
    default:
      return undefined;
  }
}
