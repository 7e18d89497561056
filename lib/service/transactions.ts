import { asError } from '../core/errors.js';
import { quoted } from '../core/printable.js';
import type { ResolvedLockOptions } from '../core/lock-options.js';
import type { LockOrigin } from '../telemetry/lock-origin.js';
import type { LockScope, Outlived } from './lock-scope.js';

/** What an application tells of its database transactions. */
export interface TransactionHooks {
  readonly inTransaction: () => unknown;
  readonly afterTransaction: ((callback: () => void) => unknown) | undefined;
}

/** A database transaction that locks are kept for. */
export class OpenTransaction implements Outlived {
  #isOver = false;
  readonly #scopes = new Set<LockScope>();

  /** @throws TypeError when a Promise comes back: it may reject later, with the lock held and nobody to tell of the end */
  constructor(afterTransaction: (callback: () => void) => unknown) {
    const answer = afterTransaction(() => {
      this.#isOver = true;
      for (const scope of this.#scopes) scope.transactionEnded();
    });
    if (!isThenable(answer)) return;
    ignoreRejection(answer);
    throw new TypeError(
      'expected `afterTransaction` to return nothing, got a Promise: nobody would wait for it. Let it take the callback at ' +
        'once, and write `void` before a Promise whose rejection is handled',
    );
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  add(scope: LockScope): void {
    this.#scopes.add(scope);
  }

  /** One whose code has ended, and whose lock is kept. */
  find(fits: (scope: LockScope) => boolean): LockScope | undefined {
    return [...this.#scopes].find((scope) => scope.awaitsCommit && fits(scope));
  }
}

/** Asks the application of its database transactions. Only a module with the option `inTransaction` has one. */
export class Transactions {
  /** By what the application tells a transaction by. */
  readonly #open = new WeakMap<object, OpenTransaction>();
  readonly #ofLock = new WeakMap<object, OpenTransaction>();
  readonly #told = new Set<string>();

  constructor(
    private readonly hooks: TransactionHooks,
    private readonly log: { warn(message: string): void; error(message: string): void },
  ) {}

  /** Whether the application tells when a transaction ends. */
  get tellEnds(): boolean {
    return this.hooks.afterTransaction !== undefined;
  }

  /**
   * A lock is about to be asked for. Now and not when it is there: the transaction may end while the call waits. Warns, once
   * for each method, of a lock that is released before the transaction around it is committed.
   *
   * @returns the transaction that the lock is kept for, if it is to be
   * @throws what the hooks throw, when the lock is to be kept: nobody knows then for how long
   */
  around(
    keys: readonly string[],
    release: ResolvedLockOptions['release'],
    origin: LockOrigin,
  ): OpenTransaction | undefined {
    const { afterTransaction } = this.hooks;
    const who = origin.method ?? `LockService (label ${quoted([origin.label])})`;
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

  /** A call that nobody waited for can still find itself in a transaction that is over: nothing would tell of its end again. */
  #hasEnded(transaction: object | true | undefined): boolean {
    return transaction !== undefined && transaction !== true && this.#open.get(transaction)?.isOver === true;
  }

  /** The lock is to be kept until the transaction ends. */
  keep<Lock extends object>(lock: Lock, transaction: OpenTransaction): Lock {
    this.#ofLock.set(lock, transaction);
    return lock;
  }

  /** What runs under a lock begins. */
  begun(scope: LockScope): void {
    this.of(scope.lock)?.add(scope);
  }

  /** The transaction that the lock is kept for. */
  of(lock: object): OpenTransaction | undefined {
    return this.#ofLock.get(lock);
  }

  /** What has run in the transaction of the running call, and whose lock is kept. */
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

  /** The transaction that the running call is in; `true` for one that the application does not name. */
  #ask(): object | true | undefined {
    const answer = this.hooks.inTransaction();
    if (answer === undefined || answer === null || answer === false) return undefined;
    if (answer === true) return answer;
    // A Promise would be there for every call.
    if (Object(answer) === answer && !(answer instanceof Promise)) return answer as object;
    if (answer instanceof Promise) ignoreRejection(answer);
    throw new TypeError(
      'expected it to return `true`, `false` or an object that is the same for all calls of a transaction, got ' +
        (answer instanceof Promise ? 'a Promise' : typeof answer),
    );
  }

  /** A warning is not worth a lock: what the hook throws is told once. */
  #askQuietly(): object | true | undefined {
    try {
      return this.#ask();
    } catch (error) {
      const what = '`inTransaction` failed';
      if (!this.#told.has(what)) {
        const why = asError(error).message;
        this.log.error(
          `${what}: ${why}. Locks are acquired all the same, and none is warned of that is released before the commit.`,
        );
      }
      this.#told.add(what);
      return undefined;
    }
  }

  #trap({ method }: LockOrigin): string {
    const order =
      method === undefined
        ? 'Acquire it before the transaction begins, and release it after the commit'
        : 'Have the lock around the transaction: `@WithLock` above `@Transactional`, on the method that begins it';
    const keep = `${method === undefined ? 'use `withLock` with' : 'give it'} \`release: 'afterCommit'\``;
    const hook = this.tellEnds ? '' : ', and give the module `afterTransaction`';
    return (
      'inside an open transaction. When it is released before the commit, the next holder does not see what this one has ' +
      `written. ${order}; or ${keep}${hook}.`
    );
  }
}

const TOO_LATE =
  'in a transaction that has ended, so the lock is released with the method. Await the call inside the transaction; or, if ' +
  'this is another transaction, let `inTransaction` give another object for it.';

function isThenable(answer: unknown): answer is PromiseLike<unknown> {
  return Object(answer) === answer && typeof (answer as PromiseLike<unknown>).then === 'function';
}

/** Of a Promise that the caller is told of already. */
function ignoreRejection(promise: PromiseLike<unknown>): void {
  promise.then(undefined, () => undefined);
}

/** @param whose - begins the message */
export function nobodyTellsOfCommit(whose = ''): TypeError {
  return new TypeError(
    `${whose}\`release: 'afterCommit'\` needs \`RedlockModule.forRoot({ inTransaction, afterTransaction })\`, by which the library ` +
      'of the database tells of a transaction and of its end. Give both; or leave `release` out, and have the lock around ' +
      'the transaction: `@WithLock` above `@Transactional`',
  );
}
