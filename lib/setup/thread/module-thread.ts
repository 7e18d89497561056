import { Worker } from 'node:worker_threads';
import { asError } from '../../core/errors.js';
import { type ThreadEvent, threadEvents } from '../../core/lock-events.js';
import type { Log } from '../../core/log.js';
import { neutrally, tellNeutrally } from '../../core/neutral.js';
import { withTimeout } from '../../core/with-timeout.js';
import type { RestartGuard } from '../../redlock/restart-guard.js';
import { Beats } from '../../redlock/thread/liveness.js';
import type { FromThread } from '../../redlock/thread/messages.js';
import type {
  HandedOver,
  RemotelyRenewed,
  RemoteRenewal,
  RenewalThread,
} from '../../redlock/renewal-ports.js';
import { ThreadHost } from '../../redlock/thread/thread-host.js';
import { networkDefaults } from './network-defaults.js';
import { countNodes } from '../open-stores.js';
import type { RedlockModuleOptions } from '../redlock.options.js';
import { fileOf } from './nodes-file.js';
import type { OwnNodes } from './own-nodes.js';
import { sendableNodes } from './sendable-nodes.js';
import type { ThreadData, ThreadTerms } from './thread-terms.js';

/** Longest time in milliseconds that a shutdown waits for the thread. */
const CLOSE_MS = 2_000;

/** Milliseconds after which the log says that the thread still has no connections. */
const CONNECT_MS = 5_000;

const FALLBACK =
  "The main thread renews the locks with `renew: 'thread'`, and can lose them while it is blocked";

/** The thread of a module whose locks live in this process: nothing that blocks the event loop can lose them. */
export function unneededThread(log: Log): RenewalThread {
  let isTold = false;
  return {
    foresee: (isCertain) => {
      if (isTold || !isCertain) return;
      isTold = true;
      log.log(
        "`renew: 'thread'` is the same as `true` here, because the locks are in the memory of this process",
      );
    },
    begin: () => undefined,
    open: () => Promise.resolve(),
    close: () => Promise.resolve(),
    whenReady: () => undefined,
    takeOver: () => undefined,
    outdone: () => undefined,
  };
}

/** The log of the module, and its name for events. */
export interface ThreadReports {
  /** The name of the module. */
  readonly instance: string | undefined;
  readonly log: Log;
  readonly warnOnce: (text: string) => void;
}

export function newRenewalThread(
  options: RedlockModuleOptions,
  terms: ThreadTerms,
  guard: RestartGuard,
  reports: ThreadReports,
): RenewalThread {
  const { nodes, threadNodes } = options;
  if (nodes === 'memory' || (Array.isArray(nodes) && nodes[0] === 'memory'))
    return unneededThread(reports.log);
  if (threadNodes !== undefined) {
    const own: OwnNodes = { file: fileOf(threadNodes), count: countNodes(options) };
    return new ModuleThread(own, terms, guard, reports);
  }
  const sendable = sendableNodes(nodes);
  return new ModuleThread(sendable.nodes ?? sendable.refusal, terms, guard, reports);
}

/** Node's options of the environment apply to a worker thread, too, except in Yarn's Plug'n'Play, which needs its own. */
function withoutPreloads(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return process.versions['pnp'] === undefined ? { ...env, NODE_OPTIONS: '' } : env;
}

/** A bundle often lacks the file of the thread, and in CommonJS the address of its own files. */
function remedyFor({ message, code }: NodeJS.ErrnoException): string {
  if (code === 'ERR_ACCESS_DENIED') return 'Allow threads with `--allow-worker`, an option of Node.';
  return code === 'ERR_INVALID_URL' || message.includes('renewal-worker')
    ? 'Put `renewal-worker.js` of nestjs-redlock beside the bundle, or leave nestjs-redlock out of the bundle (`externals`), see docs/blocked-event-loop.md.'
    : 'Restart the process to get a thread again.';
}

/** The worker thread of a module, which renews its locks with `renew: 'thread'`. It starts when it is needed. */
class ModuleThread implements RenewalThread {
  #isWanted = false;
  #isOpen = false;
  #worker: Worker | undefined;
  #host: ThreadHost | undefined;
  #hasFailed = false;
  #slow: NodeJS.Timeout | undefined;
  #ready: () => void = () => undefined;
  /** Called when it is known if the thread can take over locks. */
  #settled: () => void = () => undefined;

  /** @param nodes - the nodes, or the reason why a thread cannot open them */
  constructor(
    private readonly nodes: ThreadData['nodes'] | string,
    private readonly terms: ThreadTerms,
    private readonly guard: RestartGuard,
    private readonly reports: ThreadReports,
  ) {}

  foresee(isCertain: boolean): void {
    if (this.#isWanted) return;
    if (typeof this.nodes === 'string') {
      if (isCertain) throw new TypeError(this.nodes);
      return;
    }
    this.#isWanted = true;
    if (!this.#isOpen) return;
    this.#start(this.nodes);
    // The thread serves all callers (S30).
    neutrally(() => this.#connect(false));
  }

  begin(): void {
    if (this.#isWanted && typeof this.nodes !== 'string') this.#start(this.nodes);
  }

  open(): Promise<void> {
    this.#isOpen = true;
    if (!this.#isWanted || typeof this.nodes === 'string') return Promise.resolve();
    const settled = new Promise<void>((resolve) => (this.#settled = resolve));
    this.#start(this.nodes);
    this.#connect(true);
    return settled;
  }

  /** Tells the thread to connect its stores. The log says when that takes long. */
  #connect(isAwaited: boolean): void {
    if (!this.#host) return this.#settled();
    this.#host.connect();
    // The start of the application may block the event loop. The thread may have connected then, but Node has not read its
    // message yet. `setImmediate` lets Node read it first.
    const timer = setTimeout(setImmediate, CONNECT_MS, () => {
      if (this.#slow !== timer) return;
      this.#settled();
      const error = new Error(`it has not connected to the nodes within ${CONNECT_MS} ms`);
      this.#tell('slow', error);
      this.reports.log.warn(`The thread for renewals is not ready: ${error.message}. ${FALLBACK}.`);
    });
    this.#slow = timer;
    // Only the start of the application waits.
    if (!isAwaited) timer.unref();
  }

  /** The thread has connected, or never will. */
  #connected(): void {
    clearTimeout(this.#slow);
    this.#slow = undefined;
    this.#settled();
  }

  whenReady(task: () => void): void {
    this.#ready = task;
  }

  takeOver(lock: RemotelyRenewed, handedOver: HandedOver): RemoteRenewal | undefined {
    return this.#host?.takeOver(lock, handedOver);
  }

  outdone(): void {
    const error = new Error('it could not renew a lock that the main thread could renew');
    this.#tell('unreachable', error);
    this.reports.warnOnce(
      `The thread for renewals does not reach the nodes: ${error.message}. ${FALLBACK}, until the thread reaches them. ` +
        'Look for a limit of connections, a proxy or a firewall between this process and the nodes.',
    );
  }

  async close(): Promise<void> {
    this.#isOpen = false;
    this.#connected();
    const worker = this.#worker;
    const host = this.#host;
    this.#worker = undefined;
    this.#host = undefined;
    if (!worker || !host) return;
    worker.ref();
    await withTimeout(host.close(), CLOSE_MS).catch(() => undefined);
    await withTimeout(worker.terminate(), CLOSE_MS).catch(() => undefined);
  }

  #start(nodes: ThreadData['nodes']): void {
    if (this.#worker || this.#hasFailed) return;
    // The thread serves all callers (S30).
    neutrally(() => {
      try {
        this.#run(nodes);
      } catch (error) {
        this.#failed(error);
      }
    });
  }

  #run(nodes: ThreadData['nodes']): void {
    const beats = new Beats();
    const workerData: ThreadData = {
      nodes,
      terms: this.terms,
      beats: beats.memory,
      network: networkDefaults(),
    };
    const worker = new Worker(new URL('./renewal-worker.js', import.meta.url), {
      name: 'nestjs-redlock',
      workerData,
      // Modules that the application preloads, such as instrumentation, have nothing to do in the thread.
      execArgv: [],
      env: withoutPreloads(process.env),
    });
    const host = new ThreadHost(
      { post: (message) => worker.postMessage(message) },
      beats,
      () => this.guard.duration,
      {
        ready: () => {
          this.#ready();
          this.#connected();
        },
        warning: this.reports.warnOnce,
        hangs: () => this.#hangs(),
      },
    );
    this.#worker = worker;
    this.#host = host;
    let cause: unknown;
    worker.on('message', (message: FromThread) => host.receive(message));
    worker.on('error', (error) => (cause = error));
    worker.on('exit', () => this.#ended(worker, host, cause));
    worker.unref();
  }

  #ended(worker: Worker, host: ThreadHost, cause: unknown): void {
    if (this.#worker !== worker) return;
    host.died();
    this.#failed(cause ?? new Error('it has ended'));
  }

  #hangs(): void {
    this.#tell('hanging', new Error('it does not answer'));
    this.reports.warnOnce(`The thread for renewals does not answer. ${FALLBACK}, until it answers.`);
  }

  #tell(reason: ThreadEvent['reason'], error: Error): void {
    const { instance } = this.reports;
    if (!threadEvents.hasSubscribers) return;
    const event: ThreadEvent = { ...(instance !== undefined && { instance }), reason, error };
    tellNeutrally(() => threadEvents.publish(event));
  }

  /** The thread is not started again: what has ended it would probably end it once more. */
  #failed(cause: unknown): void {
    this.#hasFailed = true;
    this.#connected();
    this.#host = undefined;
    const error = asError(cause);
    this.#tell('ended', error);
    this.reports.log.error(
      `The thread for renewals has failed: ${error.message}. ${FALLBACK}. ${remedyFor(error)}`,
    );
  }
}
