import { type ChildProcess, spawn, type SpawnOptions } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { guard, unguard } from './orphan-guard.js';

const START_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 30_000;
const KEPT_OUTPUT = 8_000;

/** A process that our process starts. Its output is kept, and shown only if it fails. */
export class ServerProcess {
  /** Resolves when the process has ended or could not be started. */
  readonly ended: Promise<void>;
  running = true;
  output = '';
  private readonly child: ChildProcess;

  constructor(
    readonly name: string,
    command: string,
    args: readonly string[],
    options: SpawnOptions = {},
  ) {
    // The process has its own group: Ctrl-C in the terminal reaches only the demo, which stops its processes in order.
    this.child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], detached: true, ...options });
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream
        ?.setEncoding('utf8')
        .on('data', (text: string) => (this.output = (this.output + text).slice(-KEPT_OUTPUT)));
    }
    const { pid } = this.child;
    if (pid !== undefined) guard(pid);
    this.ended = new Promise((resolve) => {
      const end = (): void => {
        this.running = false;
        if (pid !== undefined) unguard(pid);
        resolve();
      };
      this.child.once('error', (error) => {
        this.output += error.message;
        end();
      });
      this.child.once('close', end);
    });
  }

  get pid(): number | undefined {
    return this.child.pid;
  }

  get exitCode(): number | null {
    return this.child.exitCode;
  }

  /**
   * Waits until `ready` returns a value.
   *
   * @throws Error with the output of the process, when the process ends first or takes too long
   */
  async whenReady<T>(ready: () => Promise<T | undefined> | T | undefined): Promise<T> {
    const deadline = Date.now() + START_TIMEOUT_MS;
    while (this.running && Date.now() < deadline) {
      const result = await ready();
      if (result !== undefined) return result;
      await sleep(20);
    }
    throw new Error(
      `${this.name} ${this.running ? `was not ready within ${START_TIMEOUT_MS / 1_000} s` : 'ended while starting'}` +
        (this.output ? `. It said:\n${this.output.trimEnd()}` : ''),
    );
  }

  /** Sends a message to a process with an `ipc` channel. Does nothing after the process has ended. */
  send(message: object): void {
    if (this.child.connected) this.child.send(message, () => undefined);
  }

  onMessage(listener: (message: object) => void): void {
    this.child.on('message', listener);
  }

  /** Pauses the process until `resume()`; its connections stay open. */
  pause(): void {
    this.child.kill('SIGSTOP');
  }

  resume(): void {
    this.child.kill('SIGCONT');
  }

  /** Kills the process as in a crash: it cannot clean up. */
  async kill(): Promise<void> {
    this.child.kill('SIGKILL');
    await this.ended;
  }

  /** Asks the process to end, and kills it if it does not end in time. */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    if (!this.running) return;
    this.child.kill(signal);
    // A paused process does not react to the signal.
    this.child.kill('SIGCONT');
    const patience = new AbortController();
    await Promise.race([this.ended, sleep(STOP_TIMEOUT_MS, undefined, patience)]);
    patience.abort();
    if (this.running) await this.kill();
  }
}
