import { Declarations, type LockDeclaration } from './declarations.js';
import type { LockSite } from './lock-site.js';
import { JoinedLock } from './joined-lock.js';
import type { LockTelemetry } from '../telemetry/lock-telemetry.js';
import { currentLockOf } from './lock-context.js';
import type { LockHandle } from '../core/lock-handle.js';
import type { Log } from '../core/log.js';
import { missingValueIn } from '../core/keys.js';
import type { AttachCall, LockCall } from './lock-call.js';
import { LockScope, type RunnableLock } from './lock-scope.js';
import { LockHeldError, LockUnavailableError } from '../core/errors.js';
import { LockWarnings, RISKY_TTL_MS } from './lock-warnings.js';
import type { GivenLockOptions, LockOptions, ResolvedLockOptions } from '../core/lock-options.js';
import type { LockInspector } from '../redlock/inspect/lock-inspector.js';
import { neutrally } from '../core/neutral.js';
import type { DetachedLock, Pass } from '../core/pass.js';
import type { AcquireTerms, Redlock } from '../redlock/redlock.js';
import { ResolvedOptions } from './resolved-options.js';
import { Shutdown, whyClosing } from './shutdown.js';
import { StartChecks } from './start-checks.js';
import { beside, SurroundingLocks } from './surrounding-locks.js';
import { noHookForCommit, type Transactions } from './transactions.js';

/**
 * Acquires locks for one module instance. Its {@link Shutdown} knows the methods and tasks that run under these locks, and
 * waits for them. `LockService` and `LockInterceptor` are its public interfaces.
 */
export class LockRuntime {
  readonly #shutdown: Shutdown;
  readonly #options: ResolvedOptions;
  readonly #warnings: LockWarnings;
  readonly #around: SurroundingLocks;
  /**
   * The options of the last call that had no signal and no tick, and was not made under a lock: the next call usually
   * has the same options.
   */
  #lastTerms: { readonly of: ResolvedLockOptions; readonly terms: AcquireTerms } | undefined;
  #opening: Promise<void> | undefined;
  #isOpen = false;

  /** @param connect - connects the nodes, and rejects when a node must not be used */
  constructor(
    private readonly redlock: Redlock,
    readonly inspection: LockInspector,
    readonly telemetry: LockTelemetry,
    defaults: LockOptions,
    shutdownTimeout: number,
    private readonly connect: () => Promise<void>,
    readonly log: Log,
    readonly declarations = new Declarations({}, log),
    private readonly transactions?: Transactions,
  ) {
    this.#options = new ResolvedOptions(defaults);
    this.#warnings = new LockWarnings(log);
    this.#around = new SurroundingLocks(this, inspection, transactions);
    this.#shutdown = new Shutdown(redlock, this.#around, shutdownTimeout);
  }

  /** Readable name of this process. */
  get owner(): string {
    return this.redlock.owner;
  }

  /** The name of this process in the queues of the stores. */
  get process(): string {
    return this.redlock.process;
  }

  /** The ids of the locks that this process holds. */
  get heldIds(): ReadonlySet<string> {
    return new Set([...this.redlock.held].map(({ id }) => id));
  }

  /** Aborts when the shutdown begins. New calls are refused a little later, by {@link drain}. */
  get closing(): AbortSignal {
    return this.redlock.closing;
  }

  /** `true` when new calls are refused. */
  get isClosed(): boolean {
    return this.#shutdown.refusing.aborted;
  }

  /**
   * The innermost lock of this runtime under which the running call is made; with `key`, the innermost lock of that key.
   * A method of this class, because callers may have the runtime inside a Proxy, as monitoring makes it.
   */
  current(key?: string): LockHandle | undefined {
    return currentLockOf(this, key);
  }

  /** `true` if the running call is refused: the application shuts down, and the call is not under a lock. */
  get refusesCall(): boolean {
    return this.isClosed && this.#around.lock()?.isHeld() !== true;
  }

  /**
   * Announces the ttls and the fixed keys of decorated methods and of the declared locks.
   *
   * @throws the errors of {@link StartChecks.run}
   */
  foresee(sites: readonly LockSite[]): void {
    new StartChecks(this.redlock, this.#options, this.declarations, this.tellsOfCommit).run(sites);
  }

  /** `true` if the application reports the end of transactions (`afterTransaction`). */
  get tellsOfCommit(): boolean {
    return this.transactions?.tellEnds === true;
  }

  /**
   * Connects the nodes once. Requests for locks wait for the connections.
   *
   * @throws Error when a server (such as a replica) is not fit for locks; all connections are closed before the
   * rejection
   */
  open(): Promise<void> {
    return (this.#opening ??= neutrally(() => this.#open()));
  }

  async #open(): Promise<void> {
    try {
      this.redlock.beginThread();
      await this.connect();
      await this.redlock.openThread();
      this.#isOpen = true;
    } catch (error) {
      await this.redlock.close();
      throw error;
    }
  }

  /**
   * Fills in the defaults of the module, and then those of the package.
   *
   * @throws TypeError for a shared lock when the defaults of the module have a `minHold`, and for `release:
   * 'afterCommit'` without `afterTransaction` of the module, and for `renew: 'thread'` with nodes that a thread cannot open
   */
  resolve(options: GivenLockOptions): ResolvedLockOptions {
    const resolved = this.#options.of(options);
    if (resolved.release === 'afterCommit' && !this.tellsOfCommit) throw noHookForCommit();
    if (resolved.renew === 'thread') this.redlock.foreseeThread();
    return resolved;
  }

  /** The declared locks with the options that apply here. */
  declared(): LockDeclaration[] {
    return this.declarations.inForce((policy) => this.#options.of(policy));
  }

  /**
   * @throws LockHeldError, LockUnavailableError, or the reason of `signal`, as a rejection of the Promise
   * @throws LockLostError synchronously when the lock to join is lost; as a rejection when that lock is lost while this
   * call waits
   * @throws RedlockError with the code LOCK_UPGRADE, synchronously
   */
  // This function and most functions that it calls are not `async`: with AsyncLocalStorage in use each Promise costs a
  // few tenths of a microsecond.
  acquire(call: LockCall): Promise<RunnableLock> {
    const { keys, origin } = call;
    for (const key of keys) if (missingValueIn(key)) this.#warnings.missingValue(key, origin);
    if (call.options.ttl < RISKY_TTL_MS) this.#warnings.shortTtl(call);
    const outer = this.#around.mayBe ? this.#around.outerOf(call) : undefined;
    const joined = outer && JoinedLock.in(outer);
    if (joined) return Promise.resolve(joined);
    const transaction = this.transactions?.around(keys, call.options.release, origin);
    const acquired = this.telemetry.isWatched
      ? this.telemetry.acquire(call, () => this.#whenOpen(call, outer?.lock))
      : this.#whenOpen(call, outer?.lock);
    if (!transaction) return acquired;
    return acquired.then((lock) => {
      lock.boundBy = () => (transaction.isOver ? undefined : KEPT_FOR_COMMIT);
      return this.transactions!.keep(lock, transaction);
    });
  }

  /**
   * Takes over a lock that another process has detached.
   *
   * @throws RedlockError with the code LOCK_NOT_ATTACHED, LockUnavailableError, or the reason of `signal`
   */
  async attach(pass: Pass & DetachedLock, { options, origin, signal }: AttachCall): Promise<RunnableLock> {
    const { keys, ttl, kind, tick } = pass;
    if (!this.isClosed) await this.open();
    const { refusing } = this.#shutdown;
    const terms = {
      ...{ renew: options.renew, maxBlocked: options.maxBlocked, retry: options.retry, explain: whyClosing },
      signals: signal ? [signal, refusing] : [refusing],
    };
    const attached = (): Promise<RunnableLock> => this.redlock.attach(pass, terms);
    if (!this.telemetry.isWatched) return attached();
    return this.telemetry.acquire({ keys, options: { ttl, kind }, origin, tick }, attached);
  }

  #whenOpen(call: LockCall, outer: RunnableLock | undefined): Promise<RunnableLock> {
    if (this.#isOpen || this.isClosed) return this.#ask(call, outer);
    return this.open().then(() => this.#ask(call, outer));
  }

  /** @param outer - the lock that the call could not join, because another nested call had joined it */
  #ask(call: LockCall, outer: RunnableLock | undefined): Promise<RunnableLock> {
    const { keys, options } = call;
    // During shutdown only code that runs under a held lock may acquire another lock, because it may need the other
    // lock in order to finish.
    const isNested = this.#around.mayBe && this.#around.lock()?.isHeld() === true;
    if (isNested && options.retry.attempts > 1) {
      const own = this.#around.inTheWay(call);
      if (own) this.#warnings.waitsForItself(call, own.keys);
    }
    const terms = isNested
      ? termsOf(call, outer, this.#shutdown.ended)
      : this.#usualTerms(call, outer, this.#shutdown.refusing);
    let acquired: Promise<RunnableLock> = this.redlock.acquire(keys, terms);
    // Another call of the same transaction may end during the wait. The transaction then keeps the lock of that call,
    // so this call waits for its own transaction, and its error must say so.
    if (isNested || this.transactions?.tellEnds)
      acquired = acquired.catch((error: unknown) => this.#around.explain(call, error));
    if (outer) acquired = beside(outer, call, acquired);
    return options.lock === undefined ? acquired : acquired.catch(naming(options.lock));
  }

  #usualTerms(call: LockCall, outer: RunnableLock | undefined, refusing: AbortSignal): AcquireTerms {
    const { options, signal, tick } = call;
    if (signal || tick || outer) return termsOf(call, outer, refusing);
    if (this.#lastTerms?.of !== options)
      this.#lastTerms = { of: options, terms: termsOf(call, outer, refusing) };
    return this.#lastTerms.terms;
  }

  /** Registers code that begins to run under `lock`. The caller must end the returned scope. */
  begin(lock: RunnableLock, { onLost }: ResolvedLockOptions): LockScope {
    // A call that joined a lock already runs inside the tracing context of that lock.
    const around = lock instanceof JoinedLock ? undefined : this.telemetry.around(lock.id);
    const ended = (): void => this.#shutdown.left(scope);
    const scope = new LockScope(lock, this, onLost, around, ended, this.transactions?.of(lock));
    this.transactions?.begun(scope);
    this.#shutdown.began(scope);
    return scope;
  }

  /** See {@link Shutdown.begin}. */
  beginClosing(): void {
    this.#shutdown.begin();
  }

  /** See {@link Shutdown.drain}. */
  drain(): Promise<void> {
    return this.#shutdown.drain();
  }

  /** See {@link Shutdown.close}. */
  close(): Promise<readonly string[]> {
    return this.#shutdown.close();
  }
}

const KEPT_FOR_COMMIT =
  "it is kept until the transaction around it has ended (`release: 'afterCommit'`). Detach a lock that you acquire with " +
  '`LockService.acquire`, after the commit';

function termsOf(
  { options, signal, tick }: LockCall,
  outer: RunnableLock | undefined,
  refusing: AbortSignal,
): AcquireTerms {
  const signals = [refusing];
  if (outer) signals.unshift(outer.lossSignal);
  if (signal) signals.unshift(signal);
  return { ...options, tick, signals, explain: whyClosing };
}

/** Makes an error handler that adds the name of the declared lock to a refusal. */
function naming(lock: string): (error: unknown) => never {
  return (error) => {
    const isRefusal = error instanceof LockHeldError || error instanceof LockUnavailableError;
    throw isRefusal ? error.named(lock) : error;
  };
}
