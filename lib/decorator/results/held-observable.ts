import { from, Observable, type ObservableInput, Subject, takeUntil } from 'rxjs';
import type { Begin, LockScope } from '../../service/lock-scope.js';

/**
 * Makes an Observable that acquires the lock at the subscription, and releases the lock when the Observable completes
 * or fails, or when the subscriber unsubscribes.
 */
export function heldObservable(begin: Begin, source: () => unknown): Observable<unknown> {
  return new Observable((subscriber) => {
    let scope: LockScope | undefined;
    // Ends the source when the subscriber unsubscribes inside `subscribe`, before there is a subscription to end.
    const left = new Subject<void>();
    const waiting = new AbortController();
    const open = async (): Promise<void> => {
      const begun = await begin(waiting.signal);
      if (!begun.scope) {
        for (const value of begun.instead) subscriber.next(value);
        subscriber.complete();
        return;
      }
      scope = begun.scope;
      const { finish, fail } = settling(scope, subscriber);
      // The subscriber unsubscribed while the lock was being acquired.
      if (subscriber.closed) return scope.end();
      scope.inside(() =>
        // Use `from`, because the source may come from another copy of rxjs.
        from(source() as ObservableInput<unknown>)
          .pipe(takeUntil(left))
          .subscribe({ next: (value) => subscriber.next(value), error: fail, complete: finish }),
      );
    };
    open().catch(async (error: unknown) => {
      await scope?.end();
      if (!subscriber.closed) subscriber.error(error);
    });
    return () => {
      left.next();
      waiting.abort();
      void scope?.end();
    };
  });
}

/** Ends the scope first, and then tells the subscriber that the source has ended. */
function settling(
  scope: LockScope,
  subscriber: { error(error: unknown): void; complete(): void },
): { finish: () => void; fail: (error: unknown) => void } {
  return {
    finish: () =>
      void scope.finish().then(
        () => subscriber.complete(),
        (loss: unknown) => subscriber.error(loss),
      ),
    fail: (error) => void scope.end().then(() => subscriber.error(error)),
  };
}
