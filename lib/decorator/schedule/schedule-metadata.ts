import 'reflect-metadata';

/** Metadata that a decorator of @nestjs/schedule sets on a method. */
export type Schedule =
  | { readonly kind: 'cron'; readonly options: CronOptions }
  | { readonly kind: 'interval'; readonly milliseconds: number }
  | { readonly kind: 'timeout' };

/** A method of an object, with its schedule if it has one. */
export interface ScheduledTask {
  /** The class of the object, and the method: those that inherit a method have schedules of their own. */
  readonly name: string;
  readonly schedule: Schedule | undefined;
}

/** The options of `@Cron`, as far as they say when it fires. */
export interface CronOptions {
  readonly cronTime: unknown;
  readonly name?: string;
  readonly timeZone?: string;
  readonly utcOffset?: number;
}

// Read by name, without an import of the package: an application without schedules does not install it.
const TYPE = 'SCHEDULER_TYPE';
const CRON = 1;
const TIMEOUT = 2;
const INTERVAL = 3;

/** The schedule of a method; `undefined` when it has none, or `method` is none. */
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
