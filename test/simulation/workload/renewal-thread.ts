import type { RestartGuard } from '../../../lib/redlock/restart-guard.js';
import type { FromThread, ToThread } from '../../../lib/redlock/thread/messages.js';
import type { RenewalThread } from '../../../lib/redlock/renewal-ports.js';
import type { Renewals } from '../../../lib/redlock/thread/renewals.js';
import type { ThreadHost } from '../../../lib/redlock/thread/thread-host.js';
import type { ThreadTerms } from '../../../lib/setup/thread/thread-terms.js';
import { Client } from '../network/client.js';
import { Link } from '../network/link.js';
import type { Application } from '../scene.js';
import type { SimulatedProcess } from '../world/process.js';
import type { World } from '../world/world.js';

/** Longest time in milliseconds that a shutdown waits for the thread (lib/setup/thread/module-thread.ts). */
const CLOSE_MS = 2_000;

/** Milliseconds for which a message between the threads is on its way. */
const MESSAGE_MS = 0.05;

/**
 * The thread of a process that renews its locks: an event loop and connections of its own, with the clocks of the
 * process. Memory is shared, and messages are copied, as between the threads of a process.
 */
export class SimulatedThread implements RenewalThread {
  readonly process: SimulatedProcess;
  readonly links: readonly Link[];
  readonly #renewals: Renewals;
  readonly #host: ThreadHost;
  readonly #world: World;
  readonly #main: SimulatedProcess;
  readonly #stores: readonly { connect(): Promise<void>; close(): Promise<void> }[];
  #whenReady: () => void = () => undefined;

  constructor({ scene, process: main, links, index }: Application, terms: ThreadTerms, guard: RestartGuard) {
    const { library, plan, world, moments, judge } = scene;
    const { stage } = library;
    this.#world = world;
    this.#main = main;
    this.process = main.startThread();
    this.links = links.map(({ server }) => new Link(this.process, server, plan.latency));
    for (const link of this.links)
      link.onSend = (command) => {
        moments.sends(index, link.server.index, command);
        judge.threadSends(this.process, command);
      };
    const beats = new library.Beats();
    const send = <Message>(
      to: SimulatedProcess,
      message: Message,
      receive: (message: Message) => void,
    ): void => {
      const copy = structuredClone(message);
      world.after(MESSAGE_MS, () => to.post(() => receive(copy)));
    };
    const toMain = (message: FromThread): void => send(main, message, (copy) => this.#host.receive(copy));
    [this.#stores, this.#renewals] = stage.read(this.process, () => {
      const context = { ...terms, names: new Set<string>(), runIds: new Map(), warnOnce: () => undefined };
      const stores = this.links.map(
        (link) => new library.RedisStore(new Client(link, true) as never, true, context),
      );
      const settings = { ...terms, owner: '', guard: new library.RestartGuard(terms.guard) };
      return [
        stores,
        new library.Renewals(stores, settings, new library.Beats(beats.memory), toMain),
      ] as const;
    });
    this.#host = new library.ThreadHost(
      { post: (message) => send(this.process, message, (copy) => this.#receive(copy, toMain)) },
      beats,
      () => guard.duration,
      { ready: () => this.#whenReady(), warning: () => undefined, hangs: () => undefined },
    );
  }

  foresee(): void {}

  begin(): void {}

  /** Does not wait for the thread: until it is ready, the process itself renews. */
  open(): Promise<void> {
    this.#host.connect();
    return Promise.resolve();
  }

  whenReady(task: () => void): void {
    this.#whenReady = task;
  }

  takeOver(...args: Parameters<ThreadHost['takeOver']>): ReturnType<ThreadHost['takeOver']> {
    return this.#host.takeOver(...args);
  }

  outdone(): void {}

  /** Waits for the thread for as long as the thread of a module is waited for. */
  async close(): Promise<void> {
    const limit = new Promise<void>((resolve) => this.#world.after(CLOSE_MS, () => this.#main.post(resolve)));
    await Promise.race([this.#host.close(), limit]);
    this.kill();
  }

  kill(): void {
    this.process.kill();
    for (const link of this.links) for (const connection of [...link.connections]) connection.close();
  }

  #receive(message: ToThread, post: (message: FromThread) => void): void {
    if (message.kind === 'connect')
      void Promise.any(this.#stores.map((store) => store.connect())).then(
        () => post({ kind: 'ready' }),
        () => undefined,
      );
    else if (message.kind === 'close') {
      this.#renewals.close();
      void Promise.allSettled(this.#stores.map((store) => store.close())).then(() =>
        post({ kind: 'closed' }),
      );
    } else this.#renewals.receive(message);
  }
}
