import { MetadataScanner } from '@nestjs/core';
import { keysOf, type LockKey } from '../../core/keys.js';
import { nameOfSchedule } from '../../service/schedule/tick-of.js';
import { scheduleOf } from './schedule-metadata.js';
import { checkTicks } from './ticks.js';

const ONCE_PER_TICK = 'nestjs-redlock:once-per-tick';

/** Metadata of `@WithLock` on a method with `oncePerTick`. */
interface Mark {
  readonly instance: string | undefined;
  /** The fixed key of the lock; `undefined` when a function computes it. */
  readonly key: string | undefined;
}

/** A class that has a method with `oncePerTick`. */
interface Ticked extends Pick<Mark, 'key'> {
  readonly type: unknown;
}

/**
 * Records that a method has `oncePerTick`. `instance` is the module instance of its lock. The schedule is checked at
 * start-up, because `@Cron` or `@Interval` may run after `@WithLock`.
 *
 * @param key - the fixed key of the lock; `undefined` when a function computes it
 */
export function markOncePerTick(
  method: object,
  instance: string | undefined,
  key: LockKey | undefined,
): void {
  const mark: Mark = { instance, key: key === undefined ? undefined : keysOf(key)[0] };
  Reflect.defineMetadata(ONCE_PER_TICK, mark, method);
}

/** Checks the methods with `oncePerTick` whose locks one module instance keeps, in one application. */
export class OncePerTickCheck {
  /** The classes with a schedule, by the name of the schedule. */
  readonly #seen = new Map<string, Ticked[]>();

  constructor(private readonly instance: string | undefined) {}

  /**
   * @throws TypeError when a method of the object has no `@Cron` or `@Interval`; Error when the ticks of a method
   * cannot be distinguished from the ticks of another class
   */
  check(object: object): void {
    const prototype = Object.getPrototypeOf(object) as Record<string, object> | null;
    for (const name of new MetadataScanner().getAllMethodNames(prototype)) {
      const method = prototype?.[name];
      const mark = method && (Reflect.getMetadata(ONCE_PER_TICK, method) as Mark | undefined);
      if (!mark || mark.instance !== this.instance) continue;
      const task = { name: `${object.constructor.name}.${name}`, schedule: scheduleOf(method) };
      checkTicks(task.name, task.schedule);
      this.#refuseNamesake(
        nameOfSchedule(task.name, task.schedule.kind),
        { type: object.constructor, ...mark },
        name,
      );
    }
  }

  /**
   * Refuses two classes with the same name, because their ticks would have the same name, too. Two providers of one
   * class are allowed: they have one schedule.
   */
  #refuseNamesake(schedule: string, ticked: Ticked, method: string): void {
    const others = this.#seen.get(schedule) ?? [];
    this.#seen.set(schedule, [...others, ticked]);
    const shares = ({ type, key }: Ticked): boolean =>
      type !== ticked.type && (key === undefined || ticked.key === undefined || key === ticked.key);
    if (!others.some(shares)) return;
    const { name } = ticked.type as { readonly name: string };
    throw new Error(
      `Two classes are named ${name}, and \`${method}\` of both has \`oncePerTick\` with the same key, or with a key ` +
        'function. A tick is identified by class, method and key, so each class would skip ticks that the other has ' +
        'run. Rename one of the classes, or lock a different fixed key in each',
    );
  }
}
