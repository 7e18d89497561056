import { AsyncLocalStorage } from 'node:async_hooks';

interface Transaction {
  /** Of the outermost one. */
  readonly root: object;
  readonly afterEnd: (() => void)[];
}

/** Transactions of no database: what a library tells of its own, and when. */
export class FakeTransactions {
  readonly #current = new AsyncLocalStorage<Transaction | undefined>();
  /** Number of calls of the hook. */
  asked = 0;

  /** Options of a module. */
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

  /** Runs `task` in a transaction, which is over when the Promise settles; in one already, as its savepoint. */
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

/** A step that a test waits for, or lets happen. */
export class Step {
  done!: () => void;
  readonly reached = new Promise<void>((resolve) => (this.done = resolve));
}
