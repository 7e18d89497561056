import type { LockHandle } from '../../../lib/core/lock-handle.js';
import { Client } from '../network/client.js';
import { Link } from '../network/link.js';
import type { Library } from '../node/load.js';
import type { Server } from '../node/server.js';
import type { Plan } from '../plans/plan.js';
import type { Application, Scene } from '../scene.js';
import { SimulatedProcess } from '../world/process.js';
import { handOver } from './handing-over.js';
import { leads } from './leading.js';
import { runTicks } from './ticking.js';
import { SimulatedThread } from './renewal-thread.js';
import { Worker } from './worker.js';
import { holdLong } from './long-holder.js';

/** Milliseconds until an application that did not start is started again. */
const START_AGAIN_MS = 1_000;

/** A process of the application, from its start to its end: the module of the library, and the callers of its locks. */
export class App implements Application {
  readonly name: string;
  readonly process: SimulatedProcess;
  readonly links: readonly Link[];
  readonly clients: readonly Client[];
  readonly locks: InstanceType<Library['LockService']>;
  readonly runtime: ReturnType<Library['makeRuntime']>;
  thread: SimulatedThread | undefined;
  #isOpen = false;
  isClosing = false;
  closedAt: number | undefined;
  readonly #leaders: InstanceType<Library['Leaders']>;

  /** @param life - the number of earlier processes in its place */
  constructor(
    readonly scene: Scene,
    readonly index: number,
    readonly life: number,
  ) {
    const { world, library, plan, servers } = scene;
    this.name = life === 0 ? `p${index}` : `p${index}.${life}`;
    const random = world.random(`app:${this.name}`);
    const clocks = {
      rate: 1 + random.between(-1, 1) * plan.drift,
      ahead: Math.round(random.between(-5_000, 5_000)),
    };
    this.process = new SimulatedProcess(world, library.stage, this.name, clocks);
    const lists = plan.lists ?? [[...servers.keys()]];
    const list = lists[Math.min(life, lists.length - 1)] ?? [];
    this.links = list.map((node) => new Link(this.process, servers[node] as Server, plan.latency));
    for (const link of this.links)
      link.onSend = (command) => scene.moments.sends(index, link.server.index, command);
    this.clients = this.links.map((link) => new Client(link, !plan.passedIn));
    const [runtime, leaders, locks] = library.stage.read(this.process, () => this.#make(library, plan));
    this.runtime = runtime;
    this.#leaders = leaders;
    this.locks = locks;
    this.process.post(() => void this.#start());
  }

  #make(
    library: Library,
    plan: Plan,
  ): readonly [App['runtime'], InstanceType<Library['Leaders']>, InstanceType<Library['LockService']>] {
    const { nodeTimeout, guard, shutdownTimeout } = plan;
    const runtime = library.makeRuntime(
      {
        nodes: this.links.map(({ server }) => `redis://${server.name}:6379`),
        owner: this.name,
        defaults: { ttl: this.scene.longestTtl },
        shutdownTimeout,
        ...(nodeTimeout !== undefined && { nodeTimeout }),
        ...(!guard && { restartGuard: false as const }),
        ...(guard && this.links.length < 3 && { restartGuard: this.scene.longestTtl }),
      },
      {
        nodesOf: (_, context) =>
          this.clients.map((client) => new library.RedisStore(client as never, !plan.passedIn, context)),
        ...(plan.thread && {
          threadOf: (...given) => (this.thread = new SimulatedThread(this, ...given)),
        }),
      },
    );
    const leaders = new library.Leaders(runtime, undefined, runtime.log);
    if (plan.leader) {
      const [ttl] = plan.ttls;
      leaders.add({
        name: 'L',
        method: 'lead',
        ttl,
        renew: undefined,
        maxBlocked: undefined,
        lead: (term) => leads(this, term as never),
      });
    }
    return [runtime, leaders, new library.LockService(runtime, leaders)];
  }

  /** `true` while it makes calls. A call before it has opened its nodes would wait for them, and then for its lock. */
  get isWorking(): boolean {
    const { world, plan } = this.scene;
    return this.#isOpen && !this.isClosing && world.time < plan.duration;
  }

  async #start(): Promise<void> {
    const { plan, judge } = this.scene;
    // A client of the application connects by itself.
    if (plan.passedIn) for (const client of this.clients) client.connect().catch(() => undefined);
    try {
      await this.runtime.open();
    } catch (error) {
      // A server was not fit for locks, so the application does not start. Something starts it again.
      judge.world.note(`${this.name} does not start: ${(error as Error).message}`);
      this.kill();
      judge.world.after(START_AGAIN_MS, () => {
        if (this.scene.apps[this.index] === this) this.scene.start(this.index, this.life + 1);
      });
      return;
    }
    if (this.isClosing) return;
    this.#isOpen = true;
    if (plan.leader) this.#leaders.start();
    for (let number = 0; number < plan.workers; number++) void new Worker(this, number).work();
    if (plan.longTtl > 0 && this.index === 0) void holdLong(this, plan.longTtl);
    if (plan.ticks) void runTicks(this);
    if (plan.handsOver) void handOver(this);
  }

  /** Closes the module, as Nest does at a shutdown. */
  close(): void {
    if (this.isClosing || this.process.isDead) return;
    this.isClosing = true;
    const { judge, plan, world } = this.scene;
    this.process.post(() => {
      const call = judge.called(this.process, 'close', plan.shutdownTimeout + 8_000);
      const closed = async (): Promise<void> => {
        this.#leaders.stop();
        await this.runtime.drain();
        await this.runtime.close();
        this.closedAt = world.time;
        judge.settled(call, 'closed');
      };
      void closed();
    });
  }

  kill(): void {
    this.process.kill();
    this.thread?.kill();
    for (const link of this.links) for (const connection of [...link.connections]) connection.close();
  }

  async untilLost(lock: Pick<LockHandle, 'signal'>, most: number): Promise<void> {
    const lost = new Promise<void>((resolve) => {
      lock.signal.addEventListener('abort', () => resolve(), { once: true });
    });
    await Promise.race([this.process.sleep(Math.max(1, most)), lost]);
  }
}
