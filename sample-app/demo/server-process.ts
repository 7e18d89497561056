import { type ChildProcess, spawn, type SpawnOptions } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { guard, unguard } from './orphan-guard.js';

const START_TIMEOUT_MS = 60_000;
const STOP_TIMEOUT_MS = 10_000;
const KEPT_OUTPUT = 8_000;

/** A process that this process starts. Its output is kept, and shown only when it fails. */
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
    // `detached` gives the process its own process group. Ctrl-C then reaches only the demo, which stops all in order.
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
   * Waits until `ready` gives something.
   * @throws Error with what the process printed, when it ends before or takes too long
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

  /** Only for a process that was started with an `ipc` channel; nothing happens when it has ended. */
  send(message: object): void {
    if (this.child.connected) this.child.send(message, () => undefined);
  }

  onMessage(listener: (message: object) => void): void {
    this.child.on('message', listener);
  }

  /** Nothing in it runs until `resume()`; its connections stay open. */
  pause(): void {
    this.child.kill('SIGSTOP');
  }

  resume(): void {
    this.child.kill('SIGCONT');
  }

  /** As in a crash: the process gets no chance to tidy up. */
  async kill(): Promise<void> {
    this.child.kill('SIGKILL');
    await this.ended;
  }

  /** Asks the process to end, and ends it when it does not. */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    if (!this.running) return;
    this.child.kill(signal);
    // A paused process would not notice.
    this.child.kill('SIGCONT');
    const patience = new AbortController();
    await Promise.race([this.ended, sleep(STOP_TIMEOUT_MS, undefined, patience)]);
    patience.abort();
    if (this.running) await this.kill();
  }
}
