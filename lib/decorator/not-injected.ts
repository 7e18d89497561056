import { RedlockError } from '../core/errors.js';
import { isDecorated } from './interceptor-injection.js';
import { LockInterceptor } from './lock.interceptor.js';

/** A call of a decorated method whose object has no interceptor of this package. */
export interface UnlockedCall {
  /** The name of the decorator, such as `@WithLock`. */
  readonly decorator: string;
  /** The names of the class and the method. */
  readonly method: string;
  /** The `this` of the call. */
  readonly self: unknown;
  readonly instance: string | undefined;
  /** The value in place of the interceptor, if there is one. */
  readonly found: unknown;
}

/** Makes the error for a call of a decorated method that cannot lock, with the cause and the remedy. */
export function cannotLock(call: UnlockedCall): RedlockError {
  return new RedlockError('LOCK_NOT_INJECTED', `${call.method} has ${call.decorator}, but ${reasonOf(call)}`);
}

function reasonOf({ method, self, instance, found }: UnlockedCall): string {
  if (typeof self !== 'object' || self === null || !isDecorated(self, instance))
    return detached(method, self);
  if (isOfAnotherCopy(found)) {
    return (
      'its LockInterceptor is of another copy of nestjs-redlock, so the method cannot lock. Install the package once: ' +
      '`npm ls nestjs-redlock` lists the copies. Also import it in one format, not with both `import` and `require`.'
    );
  }
  if (found !== undefined) {
    // A mock of the interceptor would return `undefined` without running the method.
    return (
      'its LockInterceptor was replaced by something else, such as a mock of `useMocker`, ' +
      'so the method cannot lock. Import `RedlockTestingModule.forRoot()` of nestjs-redlock/testing into the testing module.'
    );
  }
  if (isUnderConstruction(self)) {
    return (
      'was called in the constructor of its object, which is before Nest can give the lock to the object. Call the method ' +
      'in `onModuleInit` or later.'
    );
  }
  return (
    'was called on an object that Nest did not create, ' +
    'so the method cannot lock. Provide the class and get the object from Nest: inject it, or use ' +
    '`app.get()` or `moduleRef.create()`. An object that a factory returns can lock only if its provider ' +
    'is neither request-scoped nor transient, and only after the start or the load of its module. ' +
    'Do not call it in the factory of another provider: call it in `onModuleInit` or later.'
  );
}

/** For `list.map(orders.settle)` and `emitter.on('order', orders.settle)`. */
function detached(method: string, self: unknown): string {
  const [of = '', name = ''] = method.split('.');
  const call = `${of.charAt(0).toLowerCase()}${of.slice(1)}.${name}`;
  return (
    `was called without its object (\`this\` was ${nameOfThis(self)}), so the method cannot lock. Pass a function ` +
    `that calls the method of the object, \`(...args) => ${call}(...args)\`, in place of \`${call}\`.`
  );
}

function nameOfThis(self: unknown): string {
  if (typeof self !== 'object' || self === null)
    return typeof self === 'function' ? 'a function' : String(self);
  const { constructor } = self as { readonly constructor?: { readonly name?: unknown } };
  const name = typeof constructor === 'function' ? constructor.name : 'Object';
  return `${/^[AEIOU]/i.test(name) ? 'an' : 'a'} ${name}`;
}

/**
 * Compares the name of the class: the class itself is another one in each copy. An automatic mock has the name of the
 * class as well, but its constructor is a function.
 */
function isOfAnotherCopy(found: unknown): boolean {
  if (typeof found !== 'object' || found === null || found instanceof LockInterceptor) return false;
  const type: unknown = Object.getPrototypeOf(found)?.constructor;
  return typeof type === 'function' && type.name === LockInterceptor.name && /^class\b/.test(String(type));
}

/** `true` if the constructor of the object is running. */
function isUnderConstruction(self: object): boolean {
  const constructing = constructorsOnStack();
  for (let type: unknown = self.constructor; typeof type === 'function'; type = Object.getPrototypeOf(type))
    if (constructing.has(type.name)) return true;
  return false;
}

/** The names of the classes whose constructors are running. The text of a stack has other names with source maps. */
function constructorsOnStack(): ReadonlySet<string | null> {
  const names = new Set<string | null>();
  const { prepareStackTrace } = Error;
  Error.prepareStackTrace = (_error, calls) => {
    for (const call of calls) if (call.isConstructor()) names.add(call.getFunctionName());
  };
  try {
    // Reading `stack` calls the function above.
    void new Error().stack;
  } finally {
    Error.prepareStackTrace = prepareStackTrace;
  }
  names.delete('');
  return names;
}
