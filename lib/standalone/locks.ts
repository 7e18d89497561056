import { badOption, checkOptionNames } from '../core/checks.js';
import { MODULE_OPTION_NAMES } from '../core/lock-options.js';
import { type Log, quiet, STDERR_LOG } from '../core/log.js';
import { quoted } from '../core/printable.js';
import { Leaders } from '../service/leader/leaders.js';
import { LockService } from '../service/lock.service.js';
import { makeRuntime, type RuntimeParts } from '../setup/open-runtime.js';
import type { RedlockModuleOptions } from '../setup/redlock.options.js';

/** A logger, such as `console`, or one of pino or winston. */
export interface LocksLogger {
  debug(message: string): void;
  info(message: string): void;
  warn(message: string): void;
  error(message: string): void;
}

/** Options of {@link createLocks}: the options of `RedlockModule.forRoot`, and the logger. */
export interface LocksOptions extends RedlockModuleOptions {
  /**
   * Gets the lines of the log, such as a lost connection.
   * @defaultValue writes all lines to the standard error stream, except those of level debug
   */
  readonly logger?: LocksLogger;
}

/** The `LockService` of a program without Nest. Close it when the program needs no more locks. */
export class Locks extends LockService {
  readonly #log: Log;
  #closing: Promise<void> | undefined;

  /** @internal {@link createLocks} makes the object. */
  constructor({ logger, ...options }: LocksOptions, parts: Pick<RuntimeParts, 'nodesOf'> = {}) {
    const log = logger ? quiet(toLog(logger)) : STDERR_LOG;
    const runtime = makeRuntime(options, { ...parts, log });
    super(runtime, new Leaders(runtime, undefined, log));
    this.#log = log;
  }

  /**
   * Refuses new calls, waits for the tasks of `withLock` for `shutdownTimeout` at most, releases the locks of `acquire`,
   * and closes the connections that `createLocks` opened. The signal of a lock that is still held aborts before its
   * release. Without this call the connections keep the process alive.
   */
  close(): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  /** Calls {@link close}, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #close(): Promise<void> {
    await this.runtime.drain();
    const late = await this.runtime.close();
    if (late.length > 0)
      this.#log.warn(
        `Closed while tasks were running under locks on ${quoted(late)}. These locks expire with their ttl. ` +
          'Let the tasks heed `closing`, or give a longer `shutdownTimeout`.',
      );
  }
}

/**
 * Makes the `LockService` for a program without Nest: a script, a migration, a worker, a function. The first call
 * connects.
 *
 * @throws TypeError or RangeError naming the wrong option
 * @example
 * ```ts
 * import { createLocks } from 'nestjs-redlock/standalone';
 *
 * await using locks = createLocks({ nodes: 'redis://localhost:6379' });
 * await locks.withLock('migration', async ({ signal }) => {
 *   signal.throwIfAborted();
 * });
 * ```
 * @see docs/standalone.md
 */
export function createLocks(options: LocksOptions): Locks {
  checkOptionNames('createLocks', options, [...MODULE_OPTION_NAMES, 'logger']);
  return new Locks(options);
}

function toLog(logger: LocksLogger): Log {
  for (const level of ['debug', 'info', 'warn', 'error'] as const)
    if (typeof logger[level] !== 'function')
      throw badOption('logger', 'an object with the functions `debug`, `info`, `warn` and `error`', logger);
  return {
    debug: (message) => logger.debug(message),
    log: (message) => logger.info(message),
    warn: (message) => logger.warn(message),
    error: (message) => logger.error(message),
  };
}
