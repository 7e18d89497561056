import 'reflect-metadata';
import type { ModulesContainer } from '@nestjs/core';
import type { Redlock } from '../redlock/redlock.js';

const DECLARED_TTLS = 'nestjs-redlock:ttls';

/** The ttl that a decorator of a method names. */
export interface DeclaredTtl {
  /** The decorator, the class and the method, for messages. */
  readonly method: string;
  readonly instance: string | undefined;
  readonly ttl: number;
}

// On the prototype and not on the method, which another decorator may replace.

/** A method of the class locks with this ttl. */
export function declareTtl(prototype: object, declared: DeclaredTtl): void {
  Reflect.defineMetadata(DECLARED_TTLS, [...ttlsOf(prototype), declared], prototype);
}

/**
 * The ttls that the classes of an application declare for the locks of one module instance. What a factory makes counts
 * once it is made, and the classes of a module that is loaded lazily do not.
 */
export function declaredTtls(modules: ModulesContainer, instance: string | undefined): DeclaredTtl[] {
  const wrappers = [...modules.values()].flatMap(({ providers, controllers, injectables }) => [
    ...providers.values(),
    ...controllers.values(),
    ...injectables.values(),
  ]);
  // Before Nest creates an instance, it has an object with the methods of the class.
  const objects = wrappers.map((wrapper): unknown => wrapper.instance).filter(isObject);
  return objects.flatMap(ttlsOf).filter((declared) => declared.instance === instance);
}

/**
 * Locks of these ttls are going to be asked for.
 *
 * @throws RangeError naming the method, when a store cannot keep its ttl, or the restart guard is fixed and shorter
 */
export function foresee(redlock: Redlock, declared: readonly DeclaredTtl[]): void {
  for (const { method, ttl } of declared) {
    try {
      redlock.foresee(ttl);
    } catch (error) {
      throw new RangeError(`${method}: ${(error as Error).message}`);
    }
  }
}

function ttlsOf(object: object): readonly DeclaredTtl[] {
  return (Reflect.getMetadata(DECLARED_TTLS, object) as readonly DeclaredTtl[] | undefined) ?? [];
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
