import { spawn, type ChildProcess } from 'node:child_process';
import { statSync, readdirSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { PassThrough } from 'node:stream';
import { runCommand } from '../../lib/cli/command.js';
import { codeOf } from '../../lib/cli/process-group.js';
import { cleanUpAfterTests } from './leftovers.js';
import { until } from './until.js';

const ROOT = resolve(import.meta.dirname, '../..');
const MAIN = join(ROOT, 'dist/esm/cli/main.js');

/** Result of a run of the command `redlock`. */
export interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** The built command `redlock` in its own process, without a terminal. */
export class CliProcess {
  stdout = '';
  stderr = '';
  /** The signal that ended the command, if one did. */
  endedBy: NodeJS.Signals | null = null;
  readonly ended: Promise<Ended>;
  readonly #child: ChildProcess;
  #over = false;

  constructor(args: readonly string[], env: NodeJS.ProcessEnv = {}) {
    assertBuilt();
    const { REDLOCK_NODES: _, ...inherited } = process.env;
    this.#child = spawn(process.execPath, [MAIN, ...args], {
      env: { ...inherited, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#child.stdout?.on('data', (chunk: Buffer) => (this.stdout += chunk.toString()));
    this.#child.stderr?.on('data', (chunk: Buffer) => (this.stderr += chunk.toString()));
    const forget = cleanUpAfterTests(async () => {
      this.#child.kill('SIGKILL');
      await this.ended;
    });
    this.ended = new Promise((done, failed) => {
      this.#child.once('error', failed);
      this.#child.once('close', (code, signal) => {
        this.#over = true;
        this.endedBy = signal;
        forget();
        done({ code, stdout: this.stdout, stderr: this.stderr });
      });
    });
  }

  /** Resolves when the standard output contains the text; rejects when the command has ended without it. */
  says(text: string | RegExp): Promise<void> {
    return this.#contains(text, () => this.stdout);
  }

  /** Resolves when the standard error output contains the text; rejects when the command has ended without it. */
  warns(text: string | RegExp): Promise<void> {
    return this.#contains(text, () => this.stderr);
  }

  async #contains(text: string | RegExp, output: () => string): Promise<void> {
    const pattern = new RegExp(text);
    await until(() => {
      const said = pattern.test(output());
      if (!said && this.#over)
        throw new Error(`the command has ended without ${pattern}:\n${this.stdout}${this.stderr}`);
      return said;
    });
  }

  signal(name: NodeJS.Signals): void {
    this.#child.kill(name);
  }

  /** Closes the pipe of the standard output, like a reader that has ended. */
  closeOutput(): void {
    this.#child.stdout?.destroy();
  }

  /** Closes the pipe of the standard error output. */
  closeErrors(): void {
    this.#child.stderr?.destroy();
  }
}

/** Runs the built command in its own process until it ends. */
export function runCli(args: readonly string[], env?: NodeJS.ProcessEnv): Promise<Ended> {
  return new CliProcess(args, env).ended;
}

/**
 * Runs the command in this process until it ends, without a terminal. This takes a tenth of the time of a process. Not
 * for `run` and `hold`, which use the outputs and the signals of their process.
 */
export async function runCliHere(args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Ended> {
  const text = { stdout: '', stderr: '' };
  const collected = (name: keyof typeof text): PassThrough =>
    new PassThrough().on('data', (chunk: Buffer) => (text[name] += chunk.toString()));
  const end = await runCommand(args, env, {
    input: new PassThrough(),
    output: collected('stdout'),
    errors: collected('stderr'),
    signal: new AbortController().signal,
    endOnSignals: () => undefined,
  });
  return { code: codeOf(end), ...text };
}

// The tests run the build. A test of an old build would say nothing about the sources.
function assertBuilt(): void {
  const built = statSync(MAIN, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const files = readdirSync(join(ROOT, 'lib'), { recursive: true, encoding: 'utf8' });
  for (const file of files.filter((name) => /^(cli|ioredis|redlock)\/.*\.ts$/.test(name))) {
    if (statSync(join(ROOT, 'lib', file)).mtimeMs > built) {
      throw new Error(`dist/esm is missing or older than lib/${file}: run "npm run build:lib" first`);
    }
  }
}
