import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { bundled } from '../support/bundle.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import type { ContenderOptions, Order, Report, Served } from './contender.js';

/** A process that contends for a lock. */
export class Contender {
  readonly #process: ChildProcess;
  readonly #exited: Promise<unknown>;
  readonly #reports: Report[] = [];

  constructor(file: string, options: ContenderOptions) {
    this.#process = fork(file, [JSON.stringify(options)], {
      execArgv: [],
      env: { ...process.env, NODE_OPTIONS: '' },
    });
    this.#process.on('message', (report: Report) => this.#reports.push(report));
    this.#exited = once(this.#process, 'exit');
    cleanUpAfterTests(() => this.kill());
  }

  /** Resolves with the next report of this kind. */
  async report<E extends Report['event']>(event: E): Promise<Extract<Report, { event: E }>> {
    for (;;) {
      const index = this.#reports.findIndex((report) => report.event === event);
      const [report] = index < 0 ? [] : this.#reports.splice(index, 1);
      if (report) return report as Extract<Report, { event: E }>;
      const gone = this.#exited.then(() => Promise.reject(new Error('the process has ended')));
      await Promise.race([once(this.#process, 'message'), gone]);
    }
  }

  tell(order: Order): void {
    this.#process.send(order);
  }

  pause(): void {
    this.#process.kill('SIGSTOP');
  }

  resume(): void {
    this.#process.kill('SIGCONT');
  }

  async kill(): Promise<void> {
    this.#process.kill('SIGKILL');
    await this.#exited;
  }

  /** Makes the process release everything and end. */
  async quit(): Promise<void> {
    this.tell('quit');
    await this.#exited;
  }
}

let program: Promise<string> | undefined;

/** Starts processes that are connected and wait for orders. */
export async function startContenders(count: number, options: ContenderOptions): Promise<Contender[]> {
  program ??= bundled('test/waiting/contender.ts');
  const path = await program;
  const all = Array.from({ length: count }, () => new Contender(path, options));
  await Promise.all(all.map((contender) => contender.report('ready')));
  return all;
}

/** Gives an order to all processes. Resolves to their grants and errors. */
export async function outcomeOf(
  contenders: readonly Contender[],
  order: 'once' | 'stop',
): Promise<{ served: Served[]; errors: string[] }> {
  for (const contender of contenders) contender.tell(order);
  const reports = await Promise.all(contenders.map((contender) => contender.report('served')));
  return {
    served: reports.flatMap(({ served }) => served).toSorted((a, b) => a.granted - b.granted),
    errors: reports.flatMap(({ errors }) => errors),
  };
}
