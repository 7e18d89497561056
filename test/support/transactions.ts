import { AsyncLocalStorage } from 'node:async_hooks';

interface Transaction {
  /** Identity of the outermost transaction. */
  readonly root: object;
  readonly afterEnd: (() => void)[];
}

/** Transactions without a database. They call the same hooks as the transactions of a library. */
export class FakeTransactions {
  readonly #current = new AsyncLocalStorage<Transaction | undefined>();
  /** Number of calls of `inTransaction`. */
  asked = 0;

  /** Transaction hooks for the options of the module. */
  readonly hooks = {
    inTransaction: (): object | undefined => {
      this.asked++;
      return this.#current.getStore()?.root;
    },
    afterTransaction: (callback: () => void): void => {
      const transaction = this.#current.getStore();
      if (!transaction) throw new Error('no transaction is open');
      transaction.afterEnd.push(callback);
    },
  };

  /**
   * Runs `task` in a transaction, which ends when the Promise settles. Within a transaction, runs `task` as a
   * savepoint.
   */
  async run<T>(task: () => Promise<T>): Promise<T> {
    if (this.#current.getStore()) return task();
    const transaction: Transaction = { root: {}, afterEnd: [] };
    try {
      return await this.#current.run(transaction, task);
    } finally {
      for (const tell of transaction.afterEnd) tell();
    }
  }
}

/** A step that a test waits for (`reached`), or causes (`done`). */
export class Step {
  done!: () => void;
  readonly reached = new Promise<void>((resolve) => (this.done = resolve));
}
