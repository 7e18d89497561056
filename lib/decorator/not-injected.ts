import { RedlockError } from '../core/errors.js';

/** A decorated method was called on an object that has no interceptor. */
export function notInjected(decorator: string, method: string): RedlockError {
  return new RedlockError(
    'LOCK_NOT_INJECTED',
    `${method} has ${decorator}, but was called on an object that Nest did not create, ` +
      'so there is nothing to lock with. Provide the class and get the object from Nest: inject it, or use ' +
      '`app.get()` or `moduleRef.create()`. What a factory makes is found at start-up only, not when it is ' +
      'request-scoped, transient or loaded lazily.',
  );
}

/** The stand-in of a mocking library would answer `undefined` without running the method. */
export function mocked(decorator: string, method: string): RedlockError {
  return new RedlockError(
    'LOCK_NOT_INJECTED',
    `${method} has ${decorator}, but its LockInterceptor was replaced by something else, such as a mock of \`useMocker\`, ` +
      'so there is nothing to lock with. Import `RedlockTestingModule.forRoot()` of nestjs-redlock/testing into the testing module.',
  );
}
