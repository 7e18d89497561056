import { Disturbances } from './judge/disturbances.js';
import { checkEnd } from './judge/end.js';
import { HandOverWatch } from './judge/hand-over.js';
import { Judge } from './judge/judge.js';
import { OrderWatch } from './judge/order.js';
import { OrphanWatch } from './judge/orphans.js';
import { PollingWatch } from './judge/polling.js';
import type { Finding, Rule } from './judge/rules.js';
import type { Link } from './network/link.js';
import type { Library } from './node/load.js';
import { Server } from './node/server.js';
import { apply } from './plans/apply.js';
import { Moments } from './plans/moments.js';
import { longestTtl, type Plan } from './plans/plan.js';
import type { Scene } from './scene.js';
import { App } from './workload/app.js';
import { finalCalls } from './workload/final-calls.js';
import { EndlessError } from './world/host.js';
import { World } from './world/world.js';

/** Milliseconds from the end of all faults to the last calls, and from there to the shutdown. */
const QUIET_MS = 15_000;
const LAST_CALLS_MS = 50_000;
/** Milliseconds that a shutdown may take beside `shutdownTimeout`. */
const CLOSE_MS = 12_000;

export interface Result {
  readonly findings: readonly Finding[];
  /** The hash of the log: the same plan has the same history. */
  readonly hash: string;
  readonly log: readonly string[];
  readonly events: number;
  /** Simulated milliseconds. */
  readonly time: number;
  readonly acquisitions: number;
}

function linksOf({ links, thread }: App): readonly Link[] {
  return thread ? [...links, ...thread.links] : links;
}

/** One world: its servers and processes, and the judge. */
export class Simulation implements Scene {
  readonly world: World;
  readonly servers: readonly Server[];
  readonly judge: Judge;
  readonly disturbances = new Disturbances();
  // A request is under way a moment after it was sent.
  readonly moments = new Moments((event) => this.world.after(0.01, () => apply(this, event)));
  readonly apps: App[] = [];
  readonly everyApp: App[] = [];
  readonly longestTtl: number;
  lastEnd = 0;
  /** The time of the end of all faults. */
  readonly healsAt: number;
  /** The links of the present processes. */
  #allLinks: readonly Link[] = [];

  constructor(
    readonly plan: Plan,
    readonly library: Library,
    { keepsLog = false, stopAt = [] }: { keepsLog?: boolean; stopAt?: readonly Rule[] } = {},
  ) {
    const world = (this.world = new World(plan.seed, keepsLog));
    library.begin(world.random('ids'));
    this.longestTtl = longestTtl(plan);
    this.healsAt = plan.duration + 1_000;
    this.servers = Array.from(
      { length: plan.nodes },
      (_, index) =>
        new Server(world, library, index, Math.round(world.random(`clock:${index}`).between(-200, 200))),
    );
    this.judge = new Judge(world, plan, stopAt);
    this.judge.inside = (process, read) => library.stage.read(process, read);
    for (const server of this.servers) {
      server.onForce = (ids) => this.judge.endedByForce(ids);
      server.onHealed = (lease, token) => this.judge.healed(server.name, lease, token);
    }
    this.judge.onLost = (holding, reason) => this.#lost(holding, reason);
    for (let index = 0; index < plan.processes; index++) this.start(index, 0);
    for (const event of plan.events)
      world.at(event.at, () => (event.on ? this.moments.wait(event) : apply(this, event)));
    new OrphanWatch(this).start();
    new HandOverWatch(this).start();
    new OrderWatch(this).start();
    new PollingWatch(this).start();
    this.#watchDisturbances();
    this.#planEnd();
  }

  start(index: number, life: number): void {
    const app = new App(this, index, life);
    this.apps[index] = app;
    this.everyApp.push(app);
    this.#allLinks = this.apps.flatMap(linksOf);
  }

  readonly links = (process: number | undefined, node: number | undefined): readonly Link[] => {
    const all =
      process === undefined ? this.#allLinks : this.apps.slice(process, process + 1).flatMap(linksOf);
    return node === undefined ? all : all.filter(({ server }) => server.index === node);
  };

  run(): Result {
    const { world, judge } = this;
    const unhandled = (error: unknown): void => {
      // The stage tells this error itself.
      if (error instanceof EndlessError) return;
      judge.find('unhandled', error instanceof Error ? (error.stack ?? error.message) : String(error));
    };
    process.on('unhandledRejection', unhandled);
    try {
      world.run(this.#lastMoment);
    } catch (error) {
      if (!(error instanceof EndlessError)) throw error;
      judge.find('endless', error.message);
    } finally {
      process.off('unhandledRejection', unhandled);
    }
    for (const app of this.everyApp) for (const error of app.process.errors) unhandled(error);
    return {
      findings: judge.findings,
      hash: world.digest(),
      log: world.log,
      events: world.events,
      time: world.time,
      acquisitions: judge.acquisitions,
    };
  }

  get #lastMoment(): number {
    return this.healsAt + QUIET_MS + LAST_CALLS_MS + this.plan.shutdownTimeout + CLOSE_MS;
  }

  #planEnd(): void {
    const { world } = this;
    world.at(this.healsAt, () => {
      world.note('all faults end');
      this.moments.end();
      for (const server of this.servers) server.heal();
      for (const link of this.links(undefined, undefined)) link.heal();
    });
    world.at(this.healsAt + QUIET_MS, () => {
      for (const app of this.apps) void finalCalls(app);
    });
    world.at(this.healsAt + QUIET_MS + LAST_CALLS_MS, () => {
      for (const app of this.apps) app.close();
    });
    world.at(this.#lastMoment, () => checkEnd(this));
  }

  #watchDisturbances(): void {
    const { world, judge } = this;
    world.after(50, () => {
      if (judge.isOver) return;
      this.disturbances.look(this.links(undefined, undefined), world.time);
      for (const holding of judge.active) {
        const app = this.apps.find(({ process }) => process === holding.process);
        if (holding.isLong && app && !this.disturbances.majorityAnswers(app.links, world.time, holding.since))
          holding.excuse ??= 'no majority answered';
      }
      this.#watchDisturbances();
    });
  }

  #lost(
    { isLong, process, excuse, jumped, lock, since }: Parameters<NonNullable<Judge['onLost']>>[0],
    reason: string,
  ): void {
    const app = this.apps.find((each) => each.process === process);
    if (!isLong || !app || app.isClosing || excuse !== undefined || jumped) return;
    // The last disturbance may be more recent than the last look.
    if (!this.disturbances.majorityAnswers(app.links, this.world.time, since)) return;
    this.judge.find(
      'long-lost',
      `${process.name} lost ${lock.keys}, although a majority answered at all times: ${reason}`,
    );
  }
}
