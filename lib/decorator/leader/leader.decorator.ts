import 'reflect-metadata';
import { badOption, checkMilliseconds, checkOptionNames } from '../../core/checks.js';
import { SHORTEST_TTL_MS } from '../../core/lock-options.js';
import { addLockSite } from '../../service/lock-sites.js';
import { checkLeaderName, type LeaderTerm } from '../../service/leader/leader-term.js';
import { injectInterceptor } from '../interceptor-injection.js';

/** Options of `@Leader`. */
export interface LeaderOptions {
  /**
   * Milliseconds after which another process leads when this one has crashed. At least 10. With less than 1000, a short
   * pause of the process ends its term.
   * @defaultValue the `ttl` of the module's `defaults`, else 10000
   */
  readonly ttl?: number;

  /**
   * The `name` of the `RedlockModule` that keeps the lock.
   * @defaultValue the one without a name
   */
  readonly instance?: string;
}

/** A method that leads; its result is awaited and not used. */
type LeadMethod = (term: LeaderTerm) => void | PromiseLike<unknown>;

const LEADERS = 'nestjs-redlock:leaders';

/** Metadata of `@Leader` on a class. */
export interface DeclaredLeader extends LeaderOptions {
  readonly name: string;
  readonly method: string | symbol;
}

/**
 * Runs the method on one process at a time: every instance of the application campaigns from its bootstrap on, and the one
 * that wins runs the method with its term.
 *
 * - The signal of the term aborts when its lock is lost, when the process resigns and when the application shuts down: the
 *   method should return then. The next attempt begins when it has.
 * - When the method returns, the process resigns until `locks.leader(name).campaign()` or its next start.
 * - When it throws, the process resigns and campaigns again after 1 s, which doubles to 30 s while it goes on throwing.
 *
 * A process that resigns or shuts down hands over in about a millisecond; one that crashes, within the ttl.
 *
 * @param name - the same in all processes; `leader:` and the name is the key that is locked
 * @throws TypeError or RangeError, when the class is defined, naming the method and what does not fit
 * @example
 * ```ts
 * import { Leader, type LeaderTerm } from 'nestjs-redlock';
 *
 * declare function messages(signal: AbortSignal): AsyncIterable<string>;
 *
 * class Consumer {
 *   @Leader('consumer', { ttl: 10_000 })
 *   async lead(term: LeaderTerm): Promise<void> {
 *     for await (const message of messages(term.signal)) console.log(term.fencingToken, message);
 *   }
 * }
 * ```
 * @see docs/leader.md
 */
export function Leader(
  name: string,
  options: LeaderOptions = {},
): <Method extends LeadMethod>(
  target: object,
  method: string | symbol,
  descriptor: TypedPropertyDescriptor<Method>,
) => void {
  return (target, method, descriptor) => {
    const fullName = checkPlace('@Leader', target, method, descriptor);
    try {
      checkLeaderName(name);
      checkOptionNames('@Leader', options, ['ttl', 'instance']);
      if (options.ttl !== undefined) checkMilliseconds('ttl', options.ttl, SHORTEST_TTL_MS);
      checkInstance(options.instance);
    } catch (error) {
      throw misuse(`@Leader of ${fullName}`, error);
    }
    const { ttl, instance } = options;
    injectInterceptor(target, instance);
    addLockSite(target, {
      place: `@Leader of ${fullName}`,
      method,
      instance,
      ttl,
      what: { kind: 'leader' },
    });
    const declared: DeclaredLeader = { name, method, ...options };
    // A class that overrides a method may repeat its decorator.
    const others = leadersOf(target).filter((other) => other.method !== method || other.name !== name);
    Reflect.defineMetadata(LEADERS, [...others, declared], target);
  };
}

/** Declarations of the object's class and of its base classes. */
export function leadersOf(object: object): readonly DeclaredLeader[] {
  return (Reflect.getMetadata(LEADERS, object) as readonly DeclaredLeader[] | undefined) ?? [];
}

/** @throws TypeError */
export function checkInstance(instance: unknown): void {
  if (instance !== undefined && (typeof instance !== 'string' || instance === ''))
    throw badOption('instance', 'the `name` of a RedlockModule', instance);
}

/**
 * @returns the class and the method
 * @throws TypeError unless it is a method of an instance
 */
export function checkPlace(
  decorator: string,
  target: object,
  method: string | symbol,
  descriptor: PropertyDescriptor | undefined,
): string {
  if (typeof descriptor?.value !== 'function' || typeof target === 'function')
    throw new TypeError(`${decorator} works only on instance methods, and \`${String(method)}\` is not one`);
  return `${target.constructor.name}.${String(method)}`;
}

/** The error of a decorator's option, with the method before it. */
export function misuse(where: string, error: unknown): Error {
  const Kind = error instanceof RangeError ? RangeError : TypeError;
  return new Kind(`${where}: ${(error as Error).message}`);
}
