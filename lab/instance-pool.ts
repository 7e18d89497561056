import { fileURLToPath } from 'node:url';
import { ServerProcess } from '../sample-app/demo/server-process.js';
import type { StopList } from '../sample-app/demo/stop-list.js';
import type { FromInstance, ToInstance } from './instance/instance-messages.js';

const PROGRAM = fileURLToPath(new URL('./instance/instance-process.js', import.meta.url));
const ANSWER_TIMEOUT_MS = 120_000;

type Listener = (message: FromInstance) => void;

/** A process that can run an instance. */
export class Worker {
  readonly booted: Promise<unknown>;
  private readonly server: ServerProcess;
  private readonly listeners = new Set<Listener>();

  constructor(name: string) {
    this.server = new ServerProcess(name, process.execPath, [PROGRAM], {
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
      env: { ...process.env, NO_COLOR: '1' },
    });
    this.server.onMessage((message) => {
      for (const listener of this.listeners) listener(message as FromInstance);
    });
    this.booted = this.answer('booted');
    // `take` awaits this Promise and reports the error. Until then its rejection must not count as unhandled.
    this.booted.catch(() => undefined);
  }

  get running(): boolean {
    return this.server.running;
  }

  listen(listener: Listener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  send(message: ToInstance): void {
    this.server.send(message);
  }

  /**
   * Waits for a message of this kind.
   *
   * @throws Error when the process reports a failure, ends, or takes too long
   */
  async answer<K extends FromInstance['kind']>(kind: K): Promise<Extract<FromInstance, { kind: K }>> {
    let stop = (): unknown => undefined;
    try {
      return await new Promise((resolve, reject) => {
        const said = (): string => (this.server.output ? `. It said:\n${this.server.output.trimEnd()}` : '');
        const fail = (what: string): void => reject(new Error(`${this.server.name} ${what}${said()}`));
        const timer = setTimeout(
          () => fail(`gave no answer in ${ANSWER_TIMEOUT_MS / 1_000} s`),
          ANSWER_TIMEOUT_MS,
        );
        void this.server.ended.then(() => fail('ended'));
        const forget = this.listen((message) => {
          if (message.kind === kind) resolve(message as Extract<FromInstance, { kind: K }>);
          else if (message.kind === 'broken') fail(`failed: ${message.message}`);
        });
        stop = () => {
          clearTimeout(timer);
          forget();
        };
      });
    } finally {
      stop();
    }
  }

  pause(): void {
    this.server.pause();
  }

  resume(): void {
    this.server.resume();
  }

  kill(): Promise<void> {
    return this.server.kill();
  }
}

/** Idle processes, each ready to run an instance. */
export class InstancePool {
  private readonly idle: Worker[] = [];
  private started = 0;

  constructor(private readonly stops: StopList) {}

  /** Starts processes until `count` of them are idle. Does not wait until they are ready. */
  async prepare(count: number): Promise<void> {
    while (this.idle.length < count) {
      const worker = new Worker(`process ${++this.started}`);
      await this.stops.add(() => worker.kill());
      this.idle.push(worker);
    }
  }

  async take(): Promise<Worker> {
    await this.prepare(1);
    const worker = this.idle.shift();
    if (!worker) throw new Error('no process was started');
    if (!worker.running) return this.take();
    await worker.booted;
    return worker;
  }

  /** Returns a process to the pool after its instance was closed. */
  give(worker: Worker): void {
    this.idle.push(worker);
  }
}
