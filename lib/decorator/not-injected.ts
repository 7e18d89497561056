import { RedlockError } from '../core/errors.js';

/** Makes the error for a decorated method of an object without an interceptor. */
export function notInjected(decorator: string, method: string): RedlockError {
  return new RedlockError(
    'LOCK_NOT_INJECTED',
    `${method} has ${decorator}, but was called on an object that Nest did not create, ` +
      'so the method cannot lock. Provide the class and get the object from Nest: inject it, or use ' +
      '`app.get()` or `moduleRef.create()`. An object that a factory returns can lock only if its provider ' +
      'is neither request-scoped nor transient, and only after the start or the load of its module.',
  );
}

/** Makes the error for a mocked interceptor, which would return `undefined` without running the method. */
export function mocked(decorator: string, method: string): RedlockError {
  return new RedlockError(
    'LOCK_NOT_INJECTED',
    `${method} has ${decorator}, but its LockInterceptor was replaced by something else, such as a mock of \`useMocker\`, ` +
      'so the method cannot lock. Import `RedlockTestingModule.forRoot()` of nestjs-redlock/testing into the testing module.',
  );
}
