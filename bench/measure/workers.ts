import { type ChildProcess, fork } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Work } from '../work.js';

const SCRIPT = fileURLToPath(new URL('../worker.js', import.meta.url));

type Reply =
  { readonly id: number; readonly result?: unknown; readonly error?: string } | { readonly lost: string };

/** A worker process; see `worker.ts`. */
export class Worker {
  readonly #child: ChildProcess;
  /** Settles when the process has ended, even by a crash: some libraries crash under the faults. */
  readonly #ended: Promise<unknown>;
  readonly #pending = new Map<number, (reply: { result?: unknown; error?: string }) => void>();
  #requests = 0;
  /** Called when the worker has lost a lock. */
  onLost: (key: string) => void = () => {};

  constructor() {
    this.#child = fork(SCRIPT, { execArgv: ['--expose-gc'], serialization: 'advanced' });
    this.#ended = new Promise((resolve) => this.#child.once('exit', resolve));
    // An error means that the process takes no further messages.
    this.#child.on('error', () => undefined);
    this.#child.on('message', (reply: Reply) => {
      if ('lost' in reply) this.onLost(reply.lost);
      else {
        this.#pending.get(reply.id)?.(reply);
        this.#pending.delete(reply.id);
      }
    });
  }

  /**
   * Sends a task to the worker.
   *
   * @returns `undefined` if the worker gave no result within the time, or failed, or has ended
   */
  async ask<Job extends keyof Work>(
    job: Job,
    args: Parameters<Work[Job]>[0],
    within = 60_000,
  ): Promise<Awaited<ReturnType<Work[Job]>> | undefined> {
    const reply = await this.#answer(job, args, within);
    return ('result' in reply ? reply.result : undefined) as Awaited<ReturnType<Work[Job]>> | undefined;
  }

  async #answer(
    job: keyof Work,
    args: unknown,
    within: number,
  ): Promise<{ result?: unknown; error?: string | undefined }> {
    const id = ++this.#requests;
    const answered = new Promise<{ result?: unknown; error?: string }>((resolve) => {
      this.#pending.set(id, resolve);
    });
    this.#child.send({ id, job, args });
    const gone = this.#ended.then(() => ({ error: 'it has ended' }));
    return Promise.race([answered, gone, sleep(within, { error: undefined }, { ref: false })]);
  }

  /**
   * Sends the worker a task that must succeed; {@link ask} is for tasks that may fail.
   *
   * @throws Error when the worker gives no result
   */
  async must<Job extends keyof Work>(
    job: Job,
    args: Parameters<Work[Job]>[0],
  ): Promise<Awaited<ReturnType<Work[Job]>>> {
    const reply = await this.#answer(job, args, 60_000);
    if (!('result' in reply))
      throw new Error(`A worker failed in the task "${job}": ${reply.error ?? 'no answer'}`);
    return reply.result as Awaited<ReturnType<Work[Job]>>;
  }

  /** Pauses the process; its connections stay open. */
  pause(): void {
    this.#child.kill('SIGSTOP');
  }

  async end(): Promise<void> {
    // SIGKILL also ends a worker with a hanging call.
    this.#child.kill('SIGKILL');
    await this.#ended;
  }
}

/** Starts `count` workers, passes them to `use`, and ends them. */
export async function withWorkers<T>(
  count: number,
  use: (workers: readonly Worker[]) => Promise<T>,
): Promise<T> {
  const workers = Array.from({ length: count }, () => new Worker());
  try {
    return await use(workers);
  } finally {
    await Promise.all(workers.map((worker) => worker.end()));
  }
}
