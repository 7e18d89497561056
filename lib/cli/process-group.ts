import { type ChildProcess, spawn } from 'node:child_process';
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { printable } from '../core/printable.js';
import { RunExitCode } from './exit-code.js';

const IS_WINDOWS = process.platform === 'win32';

/** Milliseconds between two looks for processes that are left in a group: no event tells of the end of a group. */
const LOOK_MS = 50;

/** The end of a command: its exit code, or the signal that ended it. */
export type CommandEnd =
  { readonly code: number; readonly signal?: undefined } | { readonly signal: NodeJS.Signals };

/** The exit code of a process that ended so; that of shells if a signal ended it. */
export function codeOf(end: CommandEnd): number {
  return end.signal === undefined ? end.code : RunExitCode.Signal + constants.signals[end.signal];
}

/** A command could not be started. */
export class StartError extends Error {
  override readonly name = 'StartError';

  constructor(
    message: string,
    /** The exit code for it. */
    readonly code: number,
  ) {
    super(message);
  }
}

/**
 * A running command with the processes that it starts. It has a process group and a session of its own, so that a signal
 * reaches all of them and nobody else. On Windows, which has neither, it is the command alone.
 */
export class ProcessGroup {
  /** Resolves when the command has ended. Processes that it started may still run. */
  readonly ended: Promise<CommandEnd>;

  private constructor(private readonly child: ChildProcess) {
    this.ended = new Promise((resolve) => {
      child.once('exit', (code, signal) => resolve(signal === null ? { code: code ?? 0 } : { signal }));
    });
  }

  /**
   * Starts a command with the standard input and outputs of this process, without a shell.
   *
   * @param env - added to the environment of this process; a variable without a value is removed
   * @throws StartError
   */
  static start([file = '', ...args]: readonly string[], env: NodeJS.ProcessEnv): Promise<ProcessGroup> {
    return new Promise((resolve, reject) => {
      const failed = (error: unknown): void => reject(startError(file, error as NodeJS.ErrnoException));
      try {
        const options = { stdio: 'inherit', detached: !IS_WINDOWS, env: { ...process.env, ...env } } as const;
        const child = spawn(file, args, options);
        const group = new ProcessGroup(child);
        child.once('error', failed);
        child.once('spawn', () => resolve(group));
      } catch (error) {
        // Some refusals of the system are thrown.
        failed(error);
      }
    });
  }

  /** Sends a signal to all processes of the group. */
  signal(name: NodeJS.Signals): void {
    // On Windows a console tells its programs itself, and a signal would end the command at once.
    if (!IS_WINDOWS) this.#send(name);
  }

  /**
   * Ends the group with SIGTERM, and with SIGKILL what is left of it after `grace` milliseconds. Resolves when the
   * command has ended and no process of the group is left, or has got SIGKILL. On Windows the command ends at once.
   */
  async stop(grace: number): Promise<void> {
    if (IS_WINDOWS) {
      this.child.kill();
      await this.ended;
      return;
    }
    this.#send('SIGTERM');
    // A process that is stopped gets SIGTERM only when it continues.
    this.#send('SIGCONT');
    const deadline = performance.now() + grace;
    while (this.#send(0)) {
      const left = deadline - performance.now();
      if (left <= 0) {
        this.#send('SIGKILL');
        break;
      }
      await sleep(Math.min(LOOK_MS, left));
    }
    await this.ended;
  }

  /** @returns `true` if the group has a process */
  #send(signal: NodeJS.Signals | 0): boolean {
    try {
      // A negative number is the group. It stays the number of this group while one of its processes is left.
      return this.child.pid !== undefined && process.kill(-this.child.pid, signal);
    } catch {
      return false;
    }
  }
}

/** Errors by which the system refuses a process, whatever the command is. */
const SYSTEM_ERRORS: readonly string[] = ['EAGAIN', 'ENOMEM', 'EMFILE', 'ENFILE'];

function startError(file: string, { code = '', message }: NodeJS.ErrnoException): StartError {
  const name = `"${printable(file)}"`;
  if (SYSTEM_ERRORS.includes(code))
    return new StartError(
      `Could not start ${name}: the system refused a process (${code})`,
      RunExitCode.System,
    );
  if (code !== 'ENOENT')
    return new StartError(`Could not start ${name}: ${message}`, RunExitCode.NotExecutable);
  const advice = /\s/.test(file)
    ? ". Write its arguments as words of their own, and shell syntax as sh -c '...'"
    : '; check its name, PATH and the working directory';
  return new StartError(`Could not start ${name}: no such command${advice}`, RunExitCode.NotFound);
}
