import { asError } from '../core/errors.js';
import { quoted } from '../core/printable.js';
import type { ResolvedLockOptions } from '../core/lock-options.js';
import { callerOf, type LockOrigin } from '../telemetry/lock-origin.js';
import type { LockScope, Outlived } from './lock-scope.js';

/** The functions with which an application reports its database transactions. */
export interface TransactionHooks {
  readonly inTransaction: () => unknown;
  readonly afterTransaction: ((callback: () => void) => unknown) | undefined;
}

/** A database transaction that keeps locks. */
export class OpenTransaction implements Outlived {
  #isOver = false;
  readonly #scopes = new Set<LockScope>();

  /**
   * @throws TypeError when the hook returns a Promise: the Promise may reject later, while the lock is held and nobody
   * reports the end of the transaction
   */
  constructor(afterTransaction: (callback: () => void) => unknown) {
    const answer = afterTransaction(() => {
      this.#isOver = true;
      for (const scope of this.#scopes) scope.transactionEnded();
    });
    if (!isThenable(answer)) return;
    ignoreRejection(answer);
    throw new TypeError(
      'expected `afterTransaction` to return nothing, got a Promise, which nobody would await. Register the callback ' +
        'synchronously, and write `void` before a Promise whose rejection is handled',
    );
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  add(scope: LockScope): void {
    this.#scopes.add(scope);
  }

  /** Finds a scope whose code has ended and whose lock is kept. */
  find(fits: (scope: LockScope) => boolean): LockScope | undefined {
    return [...this.#scopes].find((scope) => scope.awaitsCommit && fits(scope));
  }
}

/**
 * Asks the application about its database transactions. Only a module with the option `inTransaction` has an object of
 * this class.
 */
export class Transactions {
  /** Open transactions, by the object with which the application identifies each. */
  readonly #open = new WeakMap<object, OpenTransaction>();
  readonly #ofLock = new WeakMap<object, OpenTransaction>();
  readonly #told = new Set<string>();

  constructor(
    private readonly hooks: TransactionHooks,
    private readonly log: { warn(message: string): void; error(message: string): void },
  ) {}

  /** `true` if the application reports the end of a transaction. */
  get tellEnds(): boolean {
    return this.hooks.afterTransaction !== undefined;
  }

  /**
   * Finds the transaction of a call before its lock is requested, because the transaction may end while the call waits.
   * Warns, once for each method, about a lock that is released before the surrounding transaction is committed.
   *
   * @returns the transaction that must keep the lock; `undefined` when the lock is released as soon as the code under
   * the lock has ended
   * @throws the error of a hook, if the lock must be kept: the end of the transaction would be unknown
   */
  around(
    keys: readonly string[],
    release: ResolvedLockOptions['release'],
    origin: LockOrigin,
  ): OpenTransaction | undefined {
    const { afterTransaction } = this.hooks;
    const who = callerOf(origin);
    if (release === 'afterCommit' && afterTransaction) {
      const transaction = this.#ask();
      if (!this.#hasEnded(transaction)) return this.#opened(transaction, afterTransaction);
      this.#warnOnce(who, `${who} locks ${quoted(keys)} ${TOO_LATE}`);
    } else if (!this.#told.has(who)) {
      const transaction = this.#askQuietly();
      if (transaction !== undefined && !this.#hasEnded(transaction))
        this.#warnOnce(who, `${who} locks ${quoted(keys)} ${this.#trap(origin)}`);
    }
    return undefined;
  }

  #warnOnce(who: string, message: string): void {
    if (this.#told.has(who)) return;
    this.#told.add(who);
    this.log.warn(message);
  }

  /**
   * `true` if the transaction has already ended. A call that nobody awaited can run after the end of its transaction,
   * and the end is not reported a second time.
   */
  #hasEnded(transaction: object | true | undefined): boolean {
    return transaction !== undefined && transaction !== true && this.#open.get(transaction)?.isOver === true;
  }

  /** Records that the transaction keeps the lock until the transaction ends. */
  keep<Lock extends object>(lock: Lock, transaction: OpenTransaction): Lock {
    this.#ofLock.set(lock, transaction);
    return lock;
  }

  /** Records that code begins to run under a lock. */
  begun(scope: LockScope): void {
    this.of(scope.lock)?.add(scope);
  }

  /** The transaction that keeps the lock. */
  of(lock: object): OpenTransaction | undefined {
    return this.#ofLock.get(lock);
  }

  /** Finds a scope of the running call's transaction whose code has ended and whose lock is kept. */
  find(fits: (scope: LockScope) => boolean): LockScope | undefined {
    const transaction = this.tellEnds ? this.#askQuietly() : undefined;
    return transaction && transaction !== true ? this.#open.get(transaction)?.find(fits) : undefined;
  }

  #opened(
    transaction: object | true | undefined,
    afterTransaction: (callback: () => void) => unknown,
  ): OpenTransaction | undefined {
    if (transaction === undefined) return undefined;
    if (transaction === true) return new OpenTransaction(afterTransaction);
    const known = this.#open.get(transaction);
    if (known) return known;
    const opened = new OpenTransaction(afterTransaction);
    this.#open.set(transaction, opened);
    return opened;
  }

  /** Asks for the transaction of the running call; `true` for a transaction that the application does not identify. */
  #ask(): object | true | undefined {
    const answer = this.hooks.inTransaction();
    if (answer === undefined || answer === null || answer === false) return undefined;
    if (answer === true) return answer;
    // Refuse a Promise: an `async` function would return one for every call, inside and outside of transactions.
    if (Object(answer) === answer && !(answer instanceof Promise)) return answer as object;
    if (answer instanceof Promise) ignoreRejection(answer);
    throw new TypeError(
      'expected `inTransaction` to return `true`, `false` or an object that is the same for all calls of a transaction, got ' +
        (answer instanceof Promise ? 'a Promise' : typeof answer),
    );
  }

  /**
   * Asks as `#ask` does, but only logs an error of the hook, once, so that the error does not reach the caller of the
   * lock.
   */
  #askQuietly(): object | true | undefined {
    try {
      return this.#ask();
    } catch (error) {
      const what = '`inTransaction` failed';
      if (!this.#told.has(what)) {
        const why = asError(error).message;
        this.log.error(
          `${what}: ${why}. Locks are still acquired, but without warnings about a release before the commit.`,
        );
      }
      this.#told.add(what);
      return undefined;
    }
  }

  #trap({ method }: LockOrigin): string {
    const order =
      method === undefined
        ? 'Acquire the lock before the transaction begins, and release it after the commit'
        : 'Put the lock around the transaction: `@WithLock` above `@Transactional`, on the method that begins the transaction';
    const keep = `${method === undefined ? 'use `withLock` with' : 'give `@WithLock` the option'} \`release: 'afterCommit'\``;
    const hook = this.tellEnds ? '' : ', and give the module `afterTransaction`';
    return (
      'inside an open transaction. If the lock is released before the commit, the next holder does not see the writes of this ' +
      `holder. ${order}; or ${keep}${hook}.`
    );
  }
}

const TOO_LATE =
  'in a transaction that has already ended, so the lock is released when its method or callback ends. Await the call inside the ' +
  'transaction; or, if the call is in a new transaction, let `inTransaction` return a different object for each transaction.';

function isThenable(answer: unknown): answer is PromiseLike<unknown> {
  return Object(answer) === answer && typeof (answer as PromiseLike<unknown>).then === 'function';
}

/** Ignores the rejection of a Promise, because the caller already gets another error. */
function ignoreRejection(promise: PromiseLike<unknown>): void {
  promise.then(undefined, () => undefined);
}

/** @param whose - the start of the message */
export function noHookForCommit(whose = ''): TypeError {
  return new TypeError(
    `${whose}\`release: 'afterCommit'\` needs \`RedlockModule.forRoot({ inTransaction, afterTransaction })\`, with which the ` +
      'database library reports a transaction and its end. Give both; or leave out `release`, and put the lock around ' +
      'the transaction: `@WithLock` above `@Transactional`',
  );
}
