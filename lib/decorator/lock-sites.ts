import 'reflect-metadata';
import type { ModulesContainer } from '@nestjs/core';
import type { LockSite } from '../service/lock-site.js';

const LOCK_SITES = 'nestjs-redlock:lock-sites';

// The sites are stored on the prototype and not on the method: another decorator may replace the method, and the
// metadata of the replaced method would be lost.

/** Records a decorator that makes a method of the class run under a lock. */
export function addLockSite(prototype: object, site: LockSite): void {
  Reflect.defineMetadata(LOCK_SITES, [...ownSitesOf(prototype), site], prototype);
}

/**
 * The decorators of an application whose locks belong to one module instance. An object from `useFactory` is included
 * as soon as it exists.
 */
export function lockSites(modules: ModulesContainer, instance: string | undefined): LockSite[] {
  const wrappers = [...modules.values()].flatMap(({ providers, controllers, injectables }) => [
    ...providers.values(),
    ...controllers.values(),
    ...injectables.values(),
  ]);
  // Before Nest creates the instance, `wrapper.instance` is an object with the methods of the class.
  return sitesOfAll(wrappers.map((wrapper): unknown => wrapper.instance).filter(isObject), instance);
}

/** The decorators of some objects whose locks belong to one module instance. */
export function sitesOfAll(objects: readonly object[], instance: string | undefined): LockSite[] {
  const sites = new Set(objects.flatMap(sitesOf));
  return [...sites].filter((site) => site.instance === instance);
}

/** The sites of an object's class and its parents. The site of an overriding method replaces the site of the parent. */
function sitesOf(object: object): readonly LockSite[] {
  const sites: LockSite[] = [];
  const replaced = new Set<string | symbol>();
  let prototype = Object.getPrototypeOf(object) as object | null;
  for (; prototype; prototype = Object.getPrototypeOf(prototype) as object | null) {
    sites.push(...ownSitesOf(prototype).filter(({ method }) => !replaced.has(method)));
    for (const name of Reflect.ownKeys(prototype)) replaced.add(name);
  }
  return sites;
}

/** The decorators of one method of a class, without those of its parents. */
export function sitesOfMethod(prototype: object, method: string | symbol): readonly LockSite[] {
  return ownSitesOf(prototype).filter((site) => site.method === method);
}

function ownSitesOf(prototype: object): readonly LockSite[] {
  return (Reflect.getOwnMetadata(LOCK_SITES, prototype) as readonly LockSite[] | undefined) ?? [];
}

export function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}
