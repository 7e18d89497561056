import type { Begin, LockScope } from '../../service/lock-scope.js';

type Step = IteratorResult<unknown, unknown>;

interface Reading {
  readonly iterator: AsyncIterator<unknown, unknown, unknown>;
  /**
   * The scope under the lock; `undefined` when the call was skipped. `iterator` then has the values that replace the
   * result.
   */
  readonly scope: LockScope | undefined;
}

/**
 * Reads an async iterable under a lock: acquires the lock at the first read, and releases it when the iterable ends or
 * its reader stops.
 *
 * An async generator would be shorter, but its `return` waits for a pending `next`, so a reader could not stop until
 * the source gives its next value.
 */
export class HeldIterator implements AsyncGenerator<unknown, unknown, unknown> {
  #reading: Promise<Reading> | undefined;
  /** `true` after the end of the iteration. From then on no code of the source may run. */
  #ended = false;

  /** @param isBegun - `true` if the lock is held already, and must be released even if nothing is read */
  constructor(
    private readonly begin: Begin,
    private readonly source: () => unknown,
    private readonly isBegun: boolean,
  ) {}

  async next(...sent: [] | [unknown]): Promise<Step> {
    const { iterator, scope } = await this.#open();
    if (this.#ended) return { done: true, value: undefined };
    return this.#step(scope, () => iterator.next(...sent));
  }

  async return(value?: unknown): Promise<Step> {
    if (!this.isBegun) this.#reading ??= Promise.resolve(NOTHING_READ);
    const { iterator, scope } = await this.#open();
    if (this.#ended) return { done: true, value };
    const step = await this.#orEnd(
      scope,
      async () => (await iterator.return?.(value)) ?? { done: true, value },
    );
    // The reader has stopped, so release the lock, although the source may still have values (S25).
    this.#ended = true;
    await scope?.end();
    return step;
  }

  async throw(error: unknown): Promise<Step> {
    if (!this.isBegun) this.#reading ??= Promise.resolve(NOTHING_READ);
    const { iterator, scope } = await this.#open();
    return this.#step(scope, () => {
      if (iterator.throw && !this.#ended) return iterator.throw(error);
      throw error;
    });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }

  #open(): Promise<Reading> {
    this.#reading ??= this.#openNow();
    return this.#reading;
  }

  async #openNow(): Promise<Reading> {
    const begun = await this.begin();
    if (!begun.scope) return { scope: undefined, iterator: values(begun.instead) };
    const { scope } = begun;
    scope.endWith(this);
    const iterable = (): AsyncIterable<unknown, unknown, unknown> =>
      this.source() as AsyncIterable<unknown, unknown, unknown>;
    return { scope, iterator: await this.#orEnd(scope, async () => iterable()[Symbol.asyncIterator]()) };
  }

  async #step(scope: LockScope | undefined, move: () => Promise<Step>): Promise<Step> {
    const { step, done } = await this.#orEnd(scope, async () => {
      const result = await move();
      // Refuse a result that is no object. A reader that got it would throw without a call of `return`, and the lock
      // would stay held.
      if (Object(result) !== result)
        throw new TypeError(`Iterator result ${String(result)} is not an object`);
      return { step: result, done: result.done };
    });
    if (done && !this.#ended) {
      this.#ended = true;
      await scope?.finish();
    }
    return step;
  }

  /** Ends the scope when the iterator fails: a failed iterator has ended. */
  async #orEnd<T>(scope: LockScope | undefined, move: () => Promise<T>): Promise<T> {
    try {
      return await (scope ? scope.inside(move) : move());
    } catch (error) {
      this.#ended = true;
      await scope?.end();
      throw error;
    }
  }
}

async function* values(of: readonly unknown[]): AsyncGenerator<unknown, unknown, unknown> {
  yield* of;
  return undefined;
}

const NOTHING_READ: Reading = { scope: undefined, iterator: values([]) };
