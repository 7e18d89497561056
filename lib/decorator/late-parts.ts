import { Logger } from '@nestjs/common';
import { RedlockError } from '../core/errors.js';
import type { Leaders } from '../service/leader/leaders.js';
import type { LockRuntime } from '../service/lock-runtime.js';

/** The parts of a module that need its options. */
export interface Parts {
  readonly runtime: LockRuntime;
  readonly leaders: Leaders;
}

/** Milliseconds after which a call that still waits for the options is logged. */
const LOGGED_AFTER_MS = 10_000;

/**
 * The parts of a module for objects that Nest may make before the options of the module: the factory of the options can
 * need a provider with locked methods. If such a provider depended on the options, the two would wait for each other.
 */
export class LateParts {
  #present: Parts | undefined;
  #coming: Promise<Parts> | undefined;
  #arrived: ((parts: Parts) => void) | undefined;
  #stopWatching: (() => void) | undefined;
  /** Objects that were made before {@link onInjected} was called. */
  readonly #injected: object[] = [];
  #tellInjected: ((object: object) => void) | undefined;

  get present(): Parts | undefined {
    return this.#present;
  }

  /** Called with each object into which Nest injects an interceptor of the module. */
  injected(object: object): void {
    if (this.#tellInjected) this.#tellInjected(object);
    else this.#injected.push(object);
  }

  /** Sets the listener for the objects into which Nest injects an interceptor; some of them are in no list of Nest. */
  onInjected(tell: (object: object) => void): void {
    this.#tellInjected = tell;
    for (const object of this.#injected.splice(0)) tell(object);
  }

  arrive(parts: Parts): void {
    this.#present = parts;
    this.#stopWatching?.();
    this.#arrived?.(parts);
  }

  /** Called when the start fails for another reason, which the application then reports. */
  fail(): void {
    this.#stopWatching?.();
  }

  /**
   * Waits for the options of the module.
   *
   * @throws RedlockError with the code LOCK_NOT_INJECTED when the process has nothing else left to do: then the options
   * wait for the caller
   */
  wait(): Promise<Parts> {
    this.#coming ??= new Promise((resolve, reject) => {
      const stuck = (): void =>
        reject(new RedlockError('LOCK_NOT_INJECTED', `RedlockModule has no options: ${REMEDY}`));
      process.once('beforeExit', stuck);
      const timer = setTimeout(() => {
        const waited = `RedlockModule has no options after ${LOGGED_AFTER_MS} ms. Perhaps ${REMEDY}`;
        new Logger('RedlockModule').warn(waited);
      }, LOGGED_AFTER_MS).unref();
      this.#arrived = resolve;
      this.#stopWatching = () => {
        process.off('beforeExit', stuck);
        clearTimeout(timer);
      };
    });
    return this.#coming;
  }
}

const REMEDY =
  'the factory of `forRootAsync`, or a provider that it needs, waits for `LockService` or for a locked method, which wait for ' +
  'the options. Such a provider may have locked methods, but call them only after the start, for example from ' +
  '`onApplicationBootstrap`. If it needs `LockService`, let it use `moduleRef.get(LockService, { strict: false })` after the start.';
