import { Inject, type InjectionToken } from '@nestjs/common';
import { LockInterceptor } from './lock.interceptor.js';

// Nest injects the interceptor of a decorated method into a hidden property of its class, which the decorator
// declares. That reaches singleton, request-scoped, transient and lazily loaded providers alike. A search of the
// container at start-up would miss the last three, and would come too late for intervals.

/** A class with a decorated method, or an instance of one. */
type Decorated = Record<symbol, LockInterceptor | undefined>;

/** Token under which a module provides its interceptor. */
export function interceptorToken(instance: string | undefined): InjectionToken {
  return instance === undefined ? LockInterceptor : Symbol.for(`LockInterceptor of '${instance}'`);
}

/** Has Nest inject the interceptor into instances of the class; once for a class and those that extend it. */
export function injectInterceptor(prototype: object, instance: string | undefined): void {
  const property = propertyOf(instance);
  if (property in prototype) return;
  // Hidden, so that it does not show when instances are logged, compared or serialized; and a property of the instance,
  // so that a Proxy around it has it too. Only instances that are frozen cannot have one.
  const ofFrozen = new WeakMap<object, LockInterceptor>();
  Object.defineProperty(prototype, property, {
    get(this: object) {
      return ofFrozen.get(this);
    },
    set(this: object, interceptor: LockInterceptor) {
      const hidden = { value: interceptor, writable: true, configurable: true };
      if (!Reflect.defineProperty(this, property, hidden)) ofFrozen.set(this, interceptor);
    },
  });
  Inject(interceptorToken(instance))(prototype, property);
}

/** The interceptor of an instance; `undefined` when Nest did not create it. */
export function interceptorOf(self: unknown, instance: string | undefined): LockInterceptor | undefined {
  if (typeof self !== 'object' || self === null) return undefined;
  return (self as Decorated)[propertyOf(instance)];
}

/**
 * Gives the interceptor to an instance that Nest holds but did not create (`useFactory`, `useValue`). It may have that
 * of an application that ran before this one.
 */
export function adopt(object: object, instance: string | undefined, interceptor: LockInterceptor): void {
  const property = propertyOf(instance);
  if (!(property in object)) return;
  const present = interceptorOf(object, instance);
  if (!present || present.isClosed) (object as Decorated)[property] = interceptor;
}

/** Nest names the property when it cannot resolve it, so its description says what to do. */
function propertyOf(instance: string | undefined): symbol {
  const name = instance === undefined ? '' : `, name: '${instance}'`;
  return Symbol.for(`@WithLock needs RedlockModule.forRoot({ nodes${name} }) in the imports`);
}
