import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { LockOptions } from '../../lib/index.js';
import { bundle } from '../support/bundle.js';
import { cleanUpAfterTests } from '../support/leftovers.js';

/** The state of a lock, as its holder reports it. */
export interface Shown {
  readonly held: boolean;
  readonly remaining: number;
  readonly aborted: boolean;
  readonly error?: string;
}

/** Builds the program of {@link BlockedHolder}. */
export async function holderProgram(): Promise<string> {
  return join(
    await bundle(['test/fixtures/blocked-holder.ts', 'lib/setup/thread/renewal-worker.ts']),
    'blocked-holder.js',
  );
}

export interface HolderOptions {
  readonly program: string;
  readonly urls: readonly string[];
  readonly key: string;
  readonly options: LockOptions;
}

/** A process that holds a lock, and blocks its event loop on request. */
export class BlockedHolder {
  readonly #child: ChildProcess;
  readonly #answers: AsyncIterator<string>;
  /** Resolves to the exit code of the process. */
  readonly exited: Promise<unknown>;
  /** The lines of its log. */
  readonly log: string[] = [];

  private constructor({ program, urls, key, options }: HolderOptions) {
    const env = {
      ...process.env,
      NO_COLOR: '1',
      KEY: key,
      REDIS_URLS: urls.join(','),
      OPTIONS: JSON.stringify(options),
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
    await holder.#answer();
    return holder;
  }

  /** Asks for an action, and resolves to the state of the lock after it. */
  ask(action: string): Promise<Shown> {
    this.#child.stdin?.write(`${action}\n`);
    return this.#answer();
  }

  /** Stops the whole process, or lets it go on. */
  send(signal: 'SIGSTOP' | 'SIGCONT'): void {
    this.#child.kill(signal);
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.exited;
  }

  async #answer(): Promise<Shown> {
    for (;;) {
      const { value, done } = await this.#answers.next();
      if (done === true) throw new Error(`the holder has ended: ${this.log.join('\n')}`);
      // Nest writes warnings to the standard output, too.
      if (value.startsWith('{')) return JSON.parse(value) as Shown;
      this.log.push(value);
    }
  }
}
