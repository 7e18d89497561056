import { MetadataScanner } from '@nestjs/core';
import { scheduleOf } from './schedule-metadata.js';
import { checkTicks } from './ticks.js';

const ONCE_PER_TICK = 'nestjs-redlock:once-per-tick';

/** The method has `oncePerTick`, with the locks of this module instance. Its schedule may be declared later. */
export function markOncePerTick(method: object, instance: string | undefined): void {
  Reflect.defineMetadata(ONCE_PER_TICK, { instance }, method);
}

/** @throws TypeError when a method of the object has `oncePerTick`, and no schedule that goes with it */
export function checkOncePerTick(object: object, instance: string | undefined): void {
  const prototype = Object.getPrototypeOf(object) as Record<string, object> | null;
  for (const name of new MetadataScanner().getAllMethodNames(prototype)) {
    const method = prototype?.[name];
    const marked =
      method && (Reflect.getMetadata(ONCE_PER_TICK, method) as { instance?: string } | undefined);
    if (marked && marked.instance === instance) {
      checkTicks(`${object.constructor.name}.${name}`, scheduleOf(method));
    }
  }
}
