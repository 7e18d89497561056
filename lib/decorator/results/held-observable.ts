import { from, Observable, type ObservableInput, Subject, takeUntil } from 'rxjs';
import type { Begin, LockScope } from '../../service/lock-scope.js';

/**
 * Makes an Observable that acquires the lock at the subscription, and releases the lock when the Observable completes
 * or fails, or when the subscriber unsubscribes.
 */
export function heldObservable(begin: Begin, source: () => unknown): Observable<unknown> {
  return new Observable((subscriber) => {
    let run: LockScope | undefined;
    // Ends the source when the subscriber unsubscribes inside `subscribe`, before there is a subscription to end.
    const left = new Subject<void>();
    const waiting = new AbortController();
    const open = async (): Promise<void> => {
      const begun = await begin(waiting.signal);
      if (!begun.run) {
        for (const value of begun.instead) subscriber.next(value);
        subscriber.complete();
        return;
      }
      run = begun.run;
      const { finish, fail } = settling(run, subscriber);
      // The subscriber unsubscribed while the lock was being acquired.
      if (subscriber.closed) return run.end();
      run.inside(() =>
        // Use `from`, because the source may come from another copy of rxjs.
        from(source() as ObservableInput<unknown>)
          .pipe(takeUntil(left))
          .subscribe({ next: (value) => subscriber.next(value), error: fail, complete: finish }),
      );
    };
    open().catch(async (error: unknown) => {
      await run?.end();
      if (!subscriber.closed) subscriber.error(error);
    });
    return () => {
      left.next();
      waiting.abort();
      void run?.end();
    };
  });
}

/** Ends the run first, and then tells the subscriber that the source has ended. */
function settling(
  run: LockScope,
  subscriber: { error(error: unknown): void; complete(): void },
): { finish: () => void; fail: (error: unknown) => void } {
  return {
    finish: () =>
      void run.finish().then(
        () => subscriber.complete(),
        (loss: unknown) => subscriber.error(loss),
      ),
    fail: (error) => void run.end().then(() => subscriber.error(error)),
  };
}
