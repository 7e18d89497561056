import type { Begin, LockScope } from '../../service/lock-scope.js';

type Step = IteratorResult<unknown, unknown>;

interface Reading {
  readonly iterator: AsyncIterator<unknown, unknown, unknown>;
  /** Nothing when there are only the values in place of the method's. */
  readonly run: LockScope | undefined;
}

/**
 * Reads an async iterable under a lock: acquires when it is first read, releases when it ends or its reader stops.
 *
 * Not an async generator, which would make a reader that stops wait for the value that is on its way; that can be
 * long, and only stopping would cut it short.
 */
export class HeldIterator implements AsyncGenerator<unknown, unknown, unknown> {
  #reading: Promise<Reading> | undefined;
  /** Then nothing of the source may run any more. */
  #ended = false;

  /**
   * @param isBegun - `true` if the lock is held already, and must be released also when nothing is read
   */
  constructor(
    private readonly begin: Begin,
    private readonly source: () => unknown,
    private readonly isBegun: boolean,
  ) {}

  async next(...sent: [] | [unknown]): Promise<Step> {
    const { iterator, run } = await this.#open();
    if (this.#ended) return { done: true, value: undefined };
    return this.#step(run, () => iterator.next(...sent));
  }

  async return(value?: unknown): Promise<Step> {
    if (!this.isBegun) this.#reading ??= Promise.resolve(NOTHING_READ);
    const { iterator, run } = await this.#open();
    const step = await this.#orEnd(
      run,
      async () => (await iterator.return?.(value)) ?? { done: true, value },
    );
    // The reader has stopped, though the source may have one more value for it (S25).
    this.#ended = true;
    await run?.end();
    return step;
  }

  async throw(error: unknown): Promise<Step> {
    if (!this.isBegun) this.#reading ??= Promise.resolve(NOTHING_READ);
    const { iterator, run } = await this.#open();
    return this.#step(run, () => {
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
    if (!begun.run) return { run: undefined, iterator: values(begun.instead) };
    const { run } = begun;
    run.endWith(this);
    const iterable = (): AsyncIterable<unknown, unknown, unknown> =>
      this.source() as AsyncIterable<unknown, unknown, unknown>;
    return { run, iterator: await this.#orEnd(run, async () => iterable()[Symbol.asyncIterator]()) };
  }

  async #step(run: LockScope | undefined, move: () => Promise<Step>): Promise<Step> {
    const { step, done } = await this.#orEnd(run, async () => {
      const result = await move();
      // Its reader throws, and does not report that it has stopped.
      if (Object(result) !== result)
        throw new TypeError(`Iterator result ${String(result)} is not an object`);
      return { step: result, done: result.done };
    });
    if (done && !this.#ended) {
      this.#ended = true;
      await run?.finish();
    }
    return step;
  }

  /** A failed iterator has ended. */
  async #orEnd<T>(run: LockScope | undefined, move: () => Promise<T>): Promise<T> {
    try {
      return await (run ? run.inside(move) : move());
    } catch (error) {
      this.#ended = true;
      await run?.end();
      throw error;
    }
  }
}

async function* values(of: readonly unknown[]): AsyncGenerator<unknown, unknown, unknown> {
  yield* of;
  return undefined;
}

const NOTHING_READ: Reading = { run: undefined, iterator: values([]) };
