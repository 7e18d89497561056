import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { cleanUpAfterTests } from './leftovers.js';
import { until } from './until.js';

/** An application in its own process. It prints its events on its standard output, one a line. */
export class Instance {
  readonly lines: string[] = [];
  readonly #exited: Promise<unknown>;
  readonly #child: ChildProcess;

  /** @param file - a program from {@link bundled} */
  constructor(file: string, env: Readonly<Record<string, string>>) {
    const child = spawn(process.execPath, [file], {
      env: { ...process.env, NODE_OPTIONS: '', NO_COLOR: '1', ...env },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    this.#child = child;
    this.#exited = once(child, 'exit');
    createInterface(child.stdout).on('line', (line) => this.lines.push(line));
    cleanUpAfterTests(() => this.kill());
  }

  async told(line: string): Promise<void> {
    await until(() => this.lines.includes(line));
  }

  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }

  /** Kills the process, as in a crash: it releases no lock and closes no connection. */
  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#exited;
  }
}
