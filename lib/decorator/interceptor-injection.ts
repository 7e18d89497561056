import { Inject, type InjectionToken } from '@nestjs/common';
import { LockInterceptor } from './lock.interceptor.js';

// The decorator declares a hidden property of the class, into which Nest injects the interceptor. This works for
// singleton, request-scoped, transient and lazily loaded providers. A search of the container at start-up would find
// only singletons, and would come too late for methods with `@Interval`.

/** A class with a decorated method, or an instance of one. */
type Decorated = Record<symbol, LockInterceptor | undefined>;

/** The injection token of the interceptor of a module instance. */
export function interceptorToken(instance: string | undefined): InjectionToken {
  return instance === undefined ? LockInterceptor : Symbol.for(`LockInterceptor of '${instance}'`);
}

/** Makes Nest inject the interceptor into instances of the class. Subclasses inherit the property. */
export function injectInterceptor(prototype: object, instance: string | undefined): void {
  const property = propertyOf(instance);
  if (property in prototype) return;
  // The property is hidden, so that it does not show when instances are logged, compared or serialized. It is a
  // property of the instance, so that a Proxy around the instance has it too. A frozen instance cannot get a property,
  // so a WeakMap keeps its interceptor.
  const ofFrozen = new WeakMap<object, LockInterceptor>();
  Object.defineProperty(prototype, property, {
    get(this: object) {
      return ofFrozen.get(this);
    },
    set(this: object, interceptor: LockInterceptor) {
      const hidden = { value: interceptor, writable: true, configurable: true };
      if (!Reflect.defineProperty(this, property, hidden)) ofFrozen.set(this, interceptor);
      // A test may have overridden the interceptor.
      if (interceptor instanceof LockInterceptor) interceptor.injectedInto(this);
    },
  });
  Inject(interceptorToken(instance))(prototype, property);
}

/** The interceptor of an instance; `undefined` when Nest did not create it. */
export function interceptorOf(self: unknown, instance: string | undefined): LockInterceptor | undefined {
  if (typeof self !== 'object' || self === null) return undefined;
  const interceptor = (self as Decorated)[propertyOf(instance)];
  return interceptor?.refusesCall ? (interceptor.successorOf(self) ?? interceptor) : interceptor;
}

/** `true` if a decorator of the object's class needs an interceptor of the instance. */
export function isDecorated(object: object, instance: string | undefined): boolean {
  return propertyOf(instance) in object;
}

/**
 * Gives the interceptor to an instance that Nest has but did not create (`useFactory`, `useValue`). The instance may
 * have the interceptor of another application in this process: the new interceptor replaces it when that application
 * has shut down.
 */
export function adopt(object: object, instance: string | undefined, interceptor: LockInterceptor): void {
  if (!isDecorated(object, instance)) return;
  const property = propertyOf(instance);
  const present = (object as Decorated)[property];
  if (!present || present.isClosed) (object as Decorated)[property] = interceptor;
  else if (present instanceof LockInterceptor) present.addSuccessor(object, interceptor);
}

/**
 * Makes the name of the hidden property. When Nest cannot inject the property, the error of Nest contains the
 * description of this symbol, so the description contains the remedy.
 */
function propertyOf(instance: string | undefined): symbol {
  const name = instance === undefined ? '' : `, name: '${instance}'`;
  return Symbol.for(
    `@WithLock needs RedlockModule.forRoot({ nodes${name} }) in the imports, of the same copy of nestjs-redlock`,
  );
}
