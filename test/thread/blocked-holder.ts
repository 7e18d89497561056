import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { LockHeldError, LockUnavailableError } from '../../lib/core/errors.js';
import { EXCLUSIVE, type LockKind } from '../../lib/core/lock-mode.js';
import { NO_RETRY } from '../../lib/core/lock-options.js';
import type { Store } from '../../lib/core/ports.js';
import type { AcquireOptions } from '../../lib/index.js';
import type { Redlock } from '../../lib/redlock/redlock.js';
import { bundle } from '../support/bundle.js';
import { redlockOver } from '../support/core.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { PATIENT } from '../support/patience.js';

/** The ttl of the locks: on a busy machine a renewal, which comes after a third of it, may be seconds late. */
export const TTL = 5_000;

/** The state of a lock, as its holder reports it. */
export interface Shown {
  readonly held: boolean;
  readonly remaining: number;
  readonly aborted: boolean;
  readonly error?: string;
  /** The contexts of the listeners of a nested holder that were told of the loss. */
  readonly told?: readonly string[];
  /** The name of the error of a nested call. */
  readonly thrown?: string;
}

/** Builds the program of {@link BlockedHolder}. */
export async function holderProgram(
  name: 'blocked-holder' | 'nested-holder' = 'blocked-holder',
): Promise<string> {
  return join(
    await bundle([
      'test/fixtures/blocked-holder.ts',
      'test/fixtures/nested-holder.ts',
      'test/fixtures/lock-nodes.ts',
      'lib/setup/thread/renewal-worker.ts',
    ]),
    `${name}.js`,
  );
}

export interface HolderOptions {
  readonly program: string;
  /** The addresses of the nodes, or the options of one node as JSON. */
  readonly urls: readonly string[];
  /** The key of the lock, or its keys with a `+` between them. */
  readonly key: string;
  readonly options: AcquireOptions;
  /** `true` if the nodes are clients, which a file of the application makes in each thread. */
  readonly hasClients?: boolean;
  /** `true` if the clients are one `Cluster`, which has these addresses. */
  readonly isCluster?: boolean;
  /** `true` if the process leads, with a key that begins with `leader:`, and the options of `@Leader`. */
  readonly leads?: boolean;
  /** The addresses of the clients in the thread, if they differ. */
  readonly threadUrls?: readonly string[];
  /** Options of Node for the environment of the process. */
  readonly nodeOptions?: string;
}

/** A process that holds a lock, and blocks its event loop on request. */
export class BlockedHolder {
  readonly #child: ChildProcess;
  readonly #answers: AsyncIterator<string>;
  /** Resolves to the exit code of the process. */
  readonly exited: Promise<unknown>;
  /** The lines of its log. */
  readonly log: string[] = [];

  private constructor({ program, urls, key, options, threadUrls, nodeOptions, ...more }: HolderOptions) {
    const { hasClients = false, isCluster = false, leads = false } = more;
    const env = {
      ...process.env,
      NO_COLOR: '1',
      KEY: key,
      URLS: urls.join(','),
      OPTIONS: JSON.stringify(options),
      HAS_CLIENTS: String(hasClients),
      IS_CLUSTER: String(isCluster),
      LEADS: String(leads),
      ...(threadUrls && { THREAD_URLS: threadUrls.join(',') }),
      ...(nodeOptions !== undefined && { NODE_OPTIONS: nodeOptions }),
    };
    const child = spawn(process.execPath, [program], { env, stdio: 'pipe' });
    this.#child = child;
    this.exited = once(child, 'exit').then(([code]: unknown[]) => code);
    this.#answers = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    createInterface({ input: child.stderr }).on('line', (line) => this.log.push(line));
    cleanUpAfterTests(() => this.kill());
  }

  /** Starts the process. Resolves when it holds the lock. */
  static async start(options: HolderOptions): Promise<BlockedHolder> {
    const holder = new BlockedHolder(options);
    await holder.answer();
    return holder;
  }

  /** Asks for an action, and resolves to the state of the lock after it. */
  ask(action: string): Promise<Shown> {
    this.tell(action);
    return this.answer();
  }

  /** Asks for an action without an answer. */
  tell(action: string): void {
    this.#child.stdin?.write(`${action}\n`);
  }

  /** Stops the whole process, or lets it go on. */
  send(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.#child.kill(signal);
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.exited;
  }

  /** Resolves to the next answer. */
  async answer(): Promise<Shown> {
    for (;;) {
      const { value, done } = await this.#answers.next();
      if (done === true) throw new Error(`the holder has ended: ${this.log.join('\n')}`);
      // Nest writes warnings to the standard output, too.
      if (value.startsWith('{')) return JSON.parse(value) as Shown;
      this.log.push(value);
    }
  }
}

/** A holder, and another process that tries to get its lock. */
export class Contest {
  private constructor(
    readonly holder: BlockedHolder,
    private readonly other: Redlock,
    private readonly key: string,
    private readonly kind: LockKind,
    private readonly ttl: number,
  ) {}

  /**
   * The other process asks for an exclusive lock, or for a permit if the holder has one; of several keys it wants the last.
   * @param stores - stores of the other process on the same servers, not connected
   */
  static async start(stores: readonly Store[], options: HolderOptions): Promise<Contest> {
    const { key } = options;
    await Promise.all(stores.map((store) => store.connect()));
    const other = redlockOver(stores, { owner: 'other', ...PATIENT });
    const { permits, ttl = TTL } = options.options;
    const holder = await BlockedHolder.start({ ...options, options: { ...options.options, ttl } });
    const kind: LockKind = permits === undefined ? EXCLUSIVE : { mode: 'permits', permits };
    return new Contest(holder, other, key.split('+').at(-1)!, kind, ttl);
  }

  /** Tries to get the lock every 50 ms, until it is granted or `stop` settles. Resolves to the time of the grant. */
  async grantedUntil(stop?: Promise<unknown>): Promise<number | undefined> {
    const over = new AbortController();
    void stop?.then(() => over.abort());
    while (!over.signal.aborted) {
      const granted = await this.#grant();
      if (granted !== undefined) return granted;
      await sleep(50);
    }
    return undefined;
  }

  /**
   * Blocks the holder, and tries to get its lock meanwhile.
   *
   * @param action - the action that blocks the holder
   */
  async blockedFor(
    ttls: number,
    action = 'block',
  ): Promise<{ readonly granted: number | undefined; readonly after: Shown }> {
    const blocked = this.holder.ask(`${action} ${ttls * this.ttl}`);
    const granted = await this.grantedUntil(blocked);
    return { granted, after: await blocked };
  }

  async end(): Promise<void> {
    await this.holder.kill();
    await this.other.close();
  }

  /** Acquires and releases the lock, unless another process holds it. Returns the time. */
  async #grant(): Promise<number | undefined> {
    const { ttl, kind } = this;
    const request = { ttl, retry: NO_RETRY, renew: false, signals: [], kind };
    try {
      const lock = await this.other.acquire([this.key], request);
      const granted = performance.now();
      await lock.release();
      return granted;
    } catch (error) {
      // On a busy machine a node may not answer in time. That is no grant, either.
      if (error instanceof LockHeldError || error instanceof LockUnavailableError) return undefined;
      throw error;
    }
  }
}
