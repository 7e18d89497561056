import type { Observable } from 'rxjs';
import type { LockHeldError } from '../core/errors.js';
import type { LockPolicy } from '../core/lock-policy.js';

/** Any method; the type of its descriptor says what is wrong with one that cannot be decorated. */
export type Method = (...args: never[]) => unknown;

/** The result of a method that can be locked. */
type LockableResult = PromiseLike<unknown> | Observable<unknown> | AsyncIterable<unknown>;

/** The reaction to a refusal, with types that say whether a refused call resolves to `undefined`. */
interface Reaction<Busy, Tick, Instead> {
  readonly onBusy?: Busy | ((error: LockHeldError) => Instead);
  readonly oncePerTick?: Tick;
}

/** `Options` with a {@link Reaction} in place of its two options. */
export type Reacting<Options extends LockPolicy, Busy, Tick, Instead> = Omit<
  Options,
  'onBusy' | 'oncePerTick'
> &
  Reaction<Busy, Tick, Instead>;

/**
 * `true` if a refused call can resolve to `undefined`. `Instead` is `unknown` without a function; a type that allows more
 * than one reaction gives `false`, because the compiler does not know which applies.
 */
export type Skips<Busy, Tick, Instead> = unknown extends Instead
  ? [Busy] extends ['skip']
    ? true
    : [Busy, Tick] extends [undefined, true]
      ? true
      : false
  : undefined extends Awaited<Instead>
    ? true
    : false;

/** Requires that a method whose calls can resolve to `undefined` says so in its result. */
type SkippedResult<Of extends Method> =
  ReturnType<Of> extends PromiseLike<infer Result>
    ? undefined extends Result
      ? unknown
      : {
          readonly 'a skipped call resolves to undefined: add `| undefined` to the result of the method': never;
        }
    : unknown;

/**
 * The descriptor of a method that can be locked. For any other method, the type has a property whose name is the message
 * that the compiler shows.
 */
export type LockableDescriptor<Key, Of extends Method, MaySkip> = TypedPropertyDescriptor<Of> &
  (ReturnType<Of> extends LockableResult
    ? unknown
    : {
        readonly 'the method must return a Promise, an Observable or an AsyncIterable: write `async`': never;
      }) &
  (Key extends Method
    ? Key extends (...args: Parameters<Of>) => unknown
      ? unknown
      : {
          readonly 'the key function must take the parameters of the method, each with its type': never;
        }
    : unknown) &
  (MaySkip extends true ? SkippedResult<Of> : unknown);

/** The descriptor of a method that can be skipped: it returns a Promise, and its result can be `undefined`. */
export type SkippableDescriptor<Of extends Method> = TypedPropertyDescriptor<Of> &
  (ReturnType<Of> extends PromiseLike<unknown>
    ? SkippedResult<Of>
    : { readonly 'the method must return a Promise: write `async`': never });
