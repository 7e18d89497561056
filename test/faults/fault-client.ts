import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { startWatchdog } from '../support/watchdog.js';
import { until } from '../support/until.js';
import { type FaultEvent, parseLog } from './events.js';
import type { WorkerCommand, WorkerOptions } from './worker.js';

/** Controls a client process from the test. */
export class FaultClient {
  readonly name: string;
  /** Milliseconds. */
  readonly ttl: number;
  killed = false;
  quitting = false;
  readonly #process: ChildProcess;
  readonly #exited: Promise<unknown>;
  #errors = '';

  /** @param programs - the folder that `bundle` made */
  constructor(
    programs: string,
    private readonly options: WorkerOptions,
  ) {
    this.name = options.client;
    this.ttl = options.ttl;
    const worker = join(programs, 'worker.js');
    this.#process = spawn(process.execPath, [worker, JSON.stringify(options)], {
      stdio: ['pipe', 'ignore', 'pipe'],
      // Jest's flags are for Jest's own process.
      env: { ...process.env, NODE_OPTIONS: '' },
    });
    this.#process.stdin!.on('error', () => undefined);
    this.#process.stderr!.on('data', (data: Buffer) => (this.#errors += data.toString()));
    this.#exited = once(this.#process, 'exit');
    // The watchdog kills the client when the test's process ends: a paused client would not notice that end itself.
    const watchdog = startWatchdog(this.#process.pid!, dirname(options.log));
    this.#process.once('exit', () => watchdog.kill('SIGKILL'));
  }

  tell(command: WorkerCommand): void {
    this.#process.stdin!.write(`${command}\n`);
  }

  /** Stops the process at once, with SIGSTOP. */
  pause(): void {
    this.#process.kill('SIGSTOP');
  }

  resume(): void {
    this.#process.kill('SIGCONT');
  }

  async kill(): Promise<void> {
    this.killed = true;
    this.#process.kill('SIGKILL');
    await this.#exited;
  }

  /** The client's events so far. */
  async events(): Promise<FaultEvent[]> {
    return existsSync(this.options.log) ? parseLog(await readFile(this.options.log, 'utf8')) : [];
  }

  /** Waits until the log has this many events of this kind. */
  async has(event: FaultEvent['event'], times = 1, within = 120_000): Promise<void> {
    const seen = async (): Promise<boolean> => {
      const { exitCode } = this.#process;
      const events = await this.events();
      if (events.filter((each) => each.event === event).length >= times) return true;
      if (exitCode === null) return false;
      throw new Error(`${this.name} ended: ${this.#errors} ${JSON.stringify(events.at(-1))}`);
    };
    await until(seen, within).catch((error: unknown) => {
      throw new Error(`${this.name} did not log "${event}". ${this.#errors}`, { cause: error });
    });
  }

  /** Stops the callers; resolves when every event and every stall until now is in the log. */
  async stop(): Promise<void> {
    const idle = (await this.events()).filter(({ event }) => event === 'idle').length;
    this.tell('stop');
    await this.has('idle', idle + 1);
  }

  /** Resolves to true if the client holds a lock according to its log. */
  async holds(): Promise<boolean> {
    const held = new Set<number>();
    for (const event of await this.events()) {
      if (event.event === 'return') held.add(event.attempt);
      else if (event.event === 'release') held.delete(event.attempt);
    }
    return held.size > 0;
  }

  /**
   * Shuts the client down; resolves when its process has ended by itself. Rejects if the library keeps the process
   * alive for longer than `within` milliseconds.
   */
  async quit(within = 120_000): Promise<void> {
    this.quitting = true;
    this.tell('quit');
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise((_resolve, reject) => {
      timer = setTimeout(() => reject(new Error(`${this.name} did not end in ${within} ms`)), within);
    });
    await Promise.race([this.#exited, late]).finally(() => clearTimeout(timer));
  }
}
