import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from 'pg';
import { PushObserver } from '../sample-app/demo/pushes.js';
import { createScratchSchema } from '../sample-app/demo/scratch-schema.js';
import { StopList } from '../sample-app/demo/stop-list.js';
import type { InstancePool, Worker } from './instance-pool.js';
import type { LabEntry, LabEvent, Outcome, Rule } from './lab-event.js';
import { NetworkLink } from './network-link.js';
import { NotAsDescribedError, type Recorder } from './recorder.js';
import { lockEnvironment, type LockPlan, startServers } from './lock-plan.js';
import type { LockServer } from './lock-server.js';
import type { RedisKind } from './redis-kind.js';
import { RedisNode } from './redis-node.js';
import { countGrantedTwice, countOverlaps, countOvertakes, countTooMany, spansOf, waitOf } from './spans.js';
import { createPushesTable } from './strategies/database-dispatch.js';
import type { StrategyName } from './strategies/strategy-names.js';

const POLL_MS = 50;
/** Milliseconds between two dispatches of an instance, for short runs. */
const DISPATCH_EVERY_MS = 150;
/** Milliseconds after which a run counts as stuck. */
const SETTLE_MS = 60_000;
/** Milliseconds for the work in progress to finish at the end of a run. */
const REST_MS = 15_000;
/** A lock without an expiry counts as held for ever after this number of refusals for each instance. */
const SKIPS_OF_A_STUCK_LOCK = 10;
/** Answers of PTTL for a missing key, and for a key without an expiry. */
const NO_KEY = -2;
const NO_END = -1;
/** Time for which the library keeps the record of an ended lock (docs/redis-keys.md). */
const LINGER_MS = 30_000;

/** Environment that all runs of the lab share. */
export interface LabServices {
  readonly databaseUrl: string;
  readonly queue: RedisNode;
  readonly redis: RedisKind;
  readonly pool: InstancePool;
}

/** Settings of one run. */
export interface StagePlan extends LockPlan {
  readonly strategy: StrategyName;
  readonly ttl: number;
  readonly work: number;
  readonly instances: number;
  /** Largest number of tasks in one dispatch. */
  readonly batch?: number;
  /** Limit of concurrent dispatchers; one instance by default. */
  readonly rule?: Rule;
  /** Milliseconds between two dispatches of an instance. */
  readonly every?: number;
  /** Name of the instance whose work blocks its event loop. */
  readonly blocked?: string;
}

/** An instance in a run, and its network. */
export interface LabInstance {
  readonly name: string;
  readonly worker: Worker;
  /** URL of the instance; empty during its start. */
  url: string;
  /** Links to the nodes, in the order of the nodes. */
  readonly toNodes: readonly NetworkLink[];
  readonly toDatabase: NetworkLink;
  state: 'running' | 'paused' | 'killed';
  /** Aborts when the instance is paused or killed, as it answers no requests then. */
  serving: AbortController;
}

/** The processes of one run, the network between them, and all faults that a run can cause. */
export class Stage {
  readonly instances: LabInstance[] = [];
  readonly nodes: LockServer[] = [];
  /** Nodes whose links hold back all data. */
  private readonly silent = new Set<LockServer>();
  private readonly name = `lab_${randomBytes(4).toString('hex')}`;
  private readonly stops = new StopList();
  private readonly database: Client;
  private queue!: PushObserver;
  private databaseUrl = '';
  private replication: NetworkLink | undefined;
  private tasks = 0;
  /** Number of events before the fault. */
  private eventsBeforeFault = 0;
  private stuck = false;
  private finished = false;
  private closed = false;
  private readonly settings: { strategy: StrategyName; ttl: number; work: number };

  private constructor(
    private readonly services: LabServices,
    readonly plan: StagePlan,
    readonly recorder: Recorder,
  ) {
    this.settings = { strategy: plan.strategy, ttl: plan.ttl, work: plan.work };
    this.database = new Client({ connectionString: services.databaseUrl });
    this.database.on('error', () => undefined);
  }

  /** Starts all processes of a run. The instances do not dispatch until {@link go}. */
  static async open(
    services: LabServices,
    plan: StagePlan,
    recorder: Recorder,
    stops: StopList,
  ): Promise<Stage> {
    const stage = new Stage(services, plan, recorder);
    await stops.add(() => stage.close());
    await stage.start();
    return stage;
  }

  // Actions on an instance

  tell(who: string, entry: LabEntry): void {
    this.recorder.add({ at: Date.now(), who, ...entry });
  }

  note(text: string): void {
    this.tell('lab', { kind: 'note', text });
  }

  /** First instance that accepts requests. */
  get serving(): LabInstance | undefined {
    return this.instances.find(({ state, url }) => state === 'running' && url !== '');
  }

  /**
   * Sends new tasks to an instance. A user of the page may stop the instance or the run during the request: then the
   * lab does not know whether the instance has stored the tasks.
   *
   * @throws NotAsDescribedError when no instance is running, or when a user has already stopped the run
   */
  async submit(count: number): Promise<void> {
    this.ended.throwIfAborted();
    const target = this.serving;
    if (!target) throw new NotAsDescribedError('no instance is running, so none can take tasks');
    const tasks = Array.from({ length: count }, () => ({
      name: `task-${++this.tasks}`,
      items: 1,
      msPerItem: 1,
    }));
    const signal = AbortSignal.any([target.serving.signal, this.ended]);
    try {
      const response = await fetch(`${target.url}/tasks`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ tasks }),
        signal,
      });
      if (response.status !== 202) throw new Error(`POST /tasks answered ${response.status}`);
      this.tell('lab', { kind: 'submitted', tasks: count });
    } catch (error) {
      if (!signal.aborted) throw error;
      this.note(`${target.name} had no time to answer; it may have taken ${count} tasks`);
    }
  }

  /** Lets these instances dispatch with their timers. */
  go(...instances: readonly LabInstance[]): void {
    for (const { worker } of instances) worker.send({ to: 'set', active: true });
  }

  /** Lets these instances finish their current dispatches, and begin no further ones. */
  rest(...instances: readonly LabInstance[]): void {
    for (const { worker } of instances) worker.send({ to: 'set', active: false });
  }

  /** Aborts when a user asks for an early end of the run. */
  get ended(): AbortSignal {
    return this.recorder.ended;
  }

  use(strategy: StrategyName): void {
    this.settings.strategy = strategy;
    for (const { worker } of this.instances) worker.send({ to: 'set', strategy });
    this.tell('lab', { kind: 'strategy', strategy });
  }

  setWork(work: number): void {
    this.settings.work = work;
    for (const { worker } of this.instances) worker.send({ to: 'set', work });
    this.tellSettings();
  }

  /**
   * Changes the ttl. The ttl is part of the configuration of an instance, so the instances restart one by one, as in a
   * deployment.
   */
  async setTtl(ttl: number): Promise<void> {
    this.settings.ttl = ttl;
    this.tellSettings();
    for (const { name, state } of [...this.instances]) {
      const instance = this.instances.find((each) => each.name === name);
      if (!instance || state !== 'running') continue;
      await this.kill(instance);
      await this.revive(instance);
    }
  }

  private tellSettings(): void {
    const { ttl, work } = this.settings;
    this.tell('lab', { kind: 'settings', ttl, work });
  }

  /** Starts a new process in place of one that was killed. */
  async revive(instance: LabInstance): Promise<void> {
    if (instance.state !== 'killed') return;
    this.instances.splice(this.instances.indexOf(instance), 1);
    this.go(await this.startInstance(instance.name));
    this.instances.sort((a, b) => a.name.localeCompare(b.name));
  }

  async kill(instance: LabInstance): Promise<void> {
    if (instance.state === 'killed') return;
    instance.state = 'killed';
    instance.serving.abort();
    await instance.worker.kill();
    this.tell(instance.name, { kind: 'killed' });
  }

  pause(instance: LabInstance): void {
    if (instance.state !== 'running') return;
    instance.state = 'paused';
    instance.serving.abort();
    instance.worker.pause();
    this.tell(instance.name, { kind: 'paused' });
  }

  resume(instance: LabInstance): void {
    if (instance.state !== 'paused') return;
    instance.state = 'running';
    instance.serving = new AbortController();
    this.tell(instance.name, { kind: 'resumed' });
    instance.worker.resume();
  }

  async killNode(node: LockServer): Promise<void> {
    if (!node.running) return;
    await node.kill();
    if (this.silent.delete(node)) for (const link of this.linksTo(node)) link.heal();
    this.tell(node.name, { kind: 'node-killed' });
  }

  async startNode(node: LockServer): Promise<void> {
    if (node.running) return;
    await node.start();
    this.tell(node.name, { kind: 'node-started', empty: node.forgets });
  }

  /**
   * Holds back all data to and from a node. Connections stay open, as if the node were paused or its network
   * interrupted.
   */
  pauseNode(node: LockServer): void {
    if (!node.running || this.silent.has(node)) return;
    this.silent.add(node);
    for (const link of this.linksTo(node)) silence(link);
    this.tell(node.name, { kind: 'paused' });
  }

  /** Delivers the data that was held back. */
  resumeNode(node: LockServer): void {
    if (!this.silent.delete(node)) return;
    for (const link of this.linksTo(node)) link.heal();
    this.tell(node.name, { kind: 'resumed' });
  }

  private linksTo(node: LockServer): NetworkLink[] {
    const index = this.namedNodes.indexOf(node);
    return this.instances.flatMap(({ toNodes }) => toNodes[index] ?? []);
  }

  /** Nodes whose keys the lab can read. All scenarios run on Redis; only the playground may have other nodes. */
  get redisNodes(): readonly RedisNode[] {
    return this.nodes.filter((node) => node instanceof RedisNode);
  }

  /** Makes the second node a replica of the first. */
  async replicate(): Promise<void> {
    const [master, replica] = this.redisNodes;
    if (!master || !replica) return;
    this.replication = await this.link(master);
    await replica.client.replicaof('127.0.0.1', this.replication.port);
    await this.until('the first synchronisation of the replica', async () =>
      (await replica.client.info('replication')).includes('master_link_status:up'),
    );
    this.note('the replica is in step with the master');
  }

  /** Holds back the replication. It is asynchronous, so the master confirms commands that the replica does not have. */
  holdReplication(): void {
    this.replication?.holdReplies();
    this.note('replication falls behind');
  }

  /** Kills the master, and makes its replica the master under the same name. */
  async failOver(): Promise<void> {
    const [master, replica] = this.redisNodes;
    if (!master || !replica) return;
    await this.killNode(master);
    await replica.client.replicaof('NO', 'ONE');
    for (const { toNodes } of this.instances) toNodes[0]?.redirect(replica);
    this.fault('the replica is the master now; the lock had not reached it');
  }

  /** Notes the time of the fault, from which the recovery counts. */
  fault(text: string): void {
    this.note(text);
    this.recorder.record.faultAt = Date.now();
    this.eventsBeforeFault = this.recorder.length;
  }

  // Conditions to wait for

  see(instance: LabInstance, kind: LabEvent['kind'], from = 0): Promise<LabEvent> {
    const fits = (event: LabEvent): boolean =>
      event.who === instance.name && event.kind === kind && (event.kind !== 'read' || event.tasks > 0);
    return this.recorder.see(`"${kind}" of ${instance.name}`, fits, from);
  }

  seeAny(what: string, fits: (event: LabEvent) => boolean, from = 0): Promise<LabEvent> {
    return this.recorder.see(what, fits, from);
  }

  /**
   * Waits until the condition is true.
   *
   * @throws NotAsDescribedError when the condition does not become true, or when a user ends the run
   */
  async until(what: string, condition: () => Promise<boolean> | boolean): Promise<void> {
    await this.wait(
      what,
      async () => {
        this.ended.throwIfAborted();
        return condition();
      },
      SETTLE_MS,
    );
  }

  /**
   * Returns the milliseconds for which a node keeps the dispatcher's lock if nobody renews it: `Infinity` for a key
   * without an expiry, 0 if the lock is free on that node.
   */
  async lockLeft({ client }: RedisNode): Promise<number> {
    const homeMade = await client.pttl(`${this.name}:batch:task:list`);
    if (homeMade !== NO_KEY) return homeMade === NO_END ? Infinity : homeMade;
    const key = `${this.name}:lock:{batch:task:list}`;
    const [record, left] = await Promise.all([client.get(key), client.pttl(key)]);
    // The library keeps a record for LINGER_MS after the release (the record then begins with `F`), or after the end of
    // a lock that was not released.
    return record === null || record.startsWith('F') ? 0 : Math.max(0, left - LINGER_MS);
  }

  /** Waits until all tasks are done, or until the lab is certain that no further task will be done. */
  async settle(): Promise<void> {
    await this.until('the end of all tasks', () => this.isSettled());
  }

  unfinished(): Promise<number> {
    return this.count(`status not in ('done', 'dead')`);
  }

  /** Waits for the end of the current work, and counts its results. */
  async finish(): Promise<Outcome> {
    this.rest(...this.instances.filter(({ state }) => state === 'running'));
    await this.comeToRest().catch((error: unknown) => {
      // Work that does not finish in time counts as lost.
      if (!(error instanceof NotAsDescribedError)) throw error;
    });
    this.finished = true;
    // Sort the events by the clock of the machine, which all processes share: on a busy machine, messages of different
    // processes arrive in any order.
    const events = this.recorder.record.events.toSorted((a, b) => a.at - b.at);
    const { pushes, duplicates } = await this.queue.count();
    const spans = spansOf(events);
    const count = (kind: LabEvent['kind']): number => events.filter((event) => event.kind === kind).length;
    return {
      tasks: await this.count('true'),
      pushes,
      duplicates,
      lost: await this.unfinished(),
      doneTwice: await this.count('attempts > 1'),
      overlaps: countOverlaps(spans),
      tooMany: countTooMany(spans, this.plan.rule ?? {}),
      overtakes: countOvertakes(events),
      waited: waitOf(events),
      grantedTwice: countGrantedTwice(spans),
      refused: count('refused'),
      skips: count('skipped'),
      unavailable: count('unavailable'),
      took: this.took(),
      recovery: this.recovery(),
    };
  }

  /**
   * Stops the servers of the run, and returns its processes to the pool. The current run ends, as its events would not
   * come any more. May be called more than once.
   */
  close(): Promise<void> {
    this.closed = true;
    this.recorder.end();
    return this.stops.stopAll();
  }

  private async comeToRest(): Promise<void> {
    await this.wait('the end of the current work', () => {
      const running = new Set(
        this.instances.filter(({ state }) => state === 'running').map(({ name }) => name),
      );
      return spansOf(this.recorder.record.events).every(
        ({ who, to }) => to !== undefined || !running.has(who),
      );
    });
    // A late write can put tasks that are already done into the queue again.
    await this.wait('the end of all tasks', () => this.isSettled());
    await this.wait('an empty queue', async () => (await this.queue.waiting()) === 0);
  }

  private async wait(
    what: string,
    condition: () => Promise<boolean> | boolean,
    within = REST_MS,
  ): Promise<void> {
    const deadline = Date.now() + within;
    while (!(await condition())) {
      if (this.closed) throw new Error('interrupted');
      if (Date.now() > deadline) throw new NotAsDescribedError(`${what}: not within ${within / 1_000} s`);
      await sleep(POLL_MS);
    }
  }

  private async isSettled(): Promise<boolean> {
    this.stuck = await this.isStuck();
    return this.stuck || (await this.unfinished()) === 0;
  }

  private took(): number {
    const { events } = this.recorder.record;
    const first = events.find(({ kind }) => kind === 'submitted');
    const last = events.findLast(({ kind }) => kind === 'pushed');
    return first && last ? last.at - first.at : 0;
  }

  private recovery(): number | 'never' | undefined {
    const { faultAt, events } = this.recorder.record;
    if (faultAt === undefined) return undefined;
    if (this.stuck) return 'never';
    const next = events.slice(this.eventsBeforeFault).find(({ kind }) => kind === 'pushed');
    return next && next.at - faultAt;
  }

  private async isStuck(): Promise<boolean> {
    const { faultAt, events } = this.recorder.record;
    const alive = this.instances.filter(({ state }) => state === 'running');
    if (faultAt === undefined || alive.length === 0) return false;
    const since = events.slice(this.eventsBeforeFault);
    const refused = alive.every(
      ({ name }) =>
        since.filter(({ who, kind }) => who === name && kind === 'skipped').length >= SKIPS_OF_A_STUCK_LOCK,
    );
    // In stores other than Redis, all locks have an expiry.
    const [node] = this.redisNodes;
    if (!refused || since.some(({ kind }) => kind === 'pushed') || !node) return false;
    return (await this.lockLeft(node)) === Infinity;
  }

  private async count(condition: string): Promise<number> {
    const { rows } = await this.database.query<{ count: number }>(
      `select count(*)::int as count from "${this.name}".tasks where ${condition}`,
    );
    return rows[0]?.count ?? 0;
  }

  private async start(): Promise<void> {
    const { services, stops, plan } = this;
    await this.database.connect();
    await stops.add(() => this.database.end());
    this.databaseUrl = await createScratchSchema(services.databaseUrl, this.name, stops);
    await this.database.query(createPushesTable(this.name));
    this.queue = new PushObserver(services.queue.url, this.name);
    await stops.add(() => this.queue.close());
    this.nodes.push(...(await startServers(plan, services.redis, stops)));
    await services.pool.prepare(plan.instances);
    await Promise.all(
      Array.from({ length: plan.instances }, (_, index) => this.startInstance(`instance-${index + 1}`)),
    );
    this.instances.sort((a, b) => a.name.localeCompare(b.name));
  }

  private async startInstance(name: string): Promise<LabInstance> {
    const { services, stops, plan, settings } = this;
    const worker = await services.pool.take();
    const [toDatabase, ...toNodes] = await Promise.all([
      this.link(addressOf(this.databaseUrl)),
      ...this.namedNodes.map((node) => this.link(node)),
    ]);
    for (const node of this.silent) {
      const link = toNodes[this.namedNodes.indexOf(node)];
      if (link) silence(link);
    }
    const forget = worker.listen((message) => {
      if ('at' in message) this.recorder.add({ who: name, ...message });
    });
    const opened = worker.answer('opened');
    worker.send({
      to: 'open',
      environment: {
        INSTANCE: name,
        DATABASE_URL: through(toDatabase as NetworkLink, this.databaseUrl),
        REDIS_URLS: services.queue.url,
        ...lockEnvironment(
          plan.store,
          this.namedNodes.map(({ url }, index) => through(toNodes[index] as NetworkLink, url)),
        ),
        KEY_PREFIX: this.name,
        LOCK_TTL: String(settings.ttl),
        // This is the longest time limit that the library allows: a busy machine must not change the outcome.
        LOCK_NODE_TIMEOUT: String(Math.floor(settings.ttl / 5)),
        ...(toNodes.length >= 3 && { LOCK_RESTART_GUARD: String(settings.ttl) }),
        DISPATCH_BATCH: String(plan.batch ?? 100),
      },
      strategy: settings.strategy,
      work: settings.work,
      every: plan.every ?? DISPATCH_EVERY_MS,
      writes: name === plan.rule?.writer,
      blocks: name === plan.blocked,
    });
    const instance: LabInstance = {
      name,
      worker,
      url: '',
      toNodes,
      toDatabase: toDatabase as NetworkLink,
      state: 'running',
      serving: new AbortController(),
    };
    this.instances.push(instance);
    await stops.add(() => this.giveBack(instance, forget));
    const { url } = await opened;
    instance.url = url;
    this.tell(name, { kind: 'started' });
    return instance;
  }

  /** Nodes that the settings of the instances name. */
  private get namedNodes(): readonly LockServer[] {
    return this.plan.nodes === 'replicated' ? this.nodes.slice(0, 1) : this.nodes;
  }

  private async link(target: { readonly host: string; readonly port: number }): Promise<NetworkLink> {
    const link = await NetworkLink.start(target);
    await this.stops.add(() => link.close());
    return link;
  }

  /** Closes the instance, so that its process can run another instance. Kills the process after an interrupted run. */
  private async giveBack(
    { worker, state, toNodes, toDatabase }: LabInstance,
    forget: () => void,
  ): Promise<void> {
    for (const link of [...toNodes, toDatabase]) link.heal();
    if (state === 'paused') worker.resume();
    try {
      if (!worker.running) return;
      if (!this.finished) throw new Error('interrupted');
      const closed = worker.answer('closed');
      worker.send({ to: 'close' });
      await closed;
      this.services.pool.give(worker);
    } catch {
      await worker.kill();
    } finally {
      forget();
    }
  }
}

function silence(link: NetworkLink): void {
  link.holdRequests();
  link.holdReplies();
}

/** Changes a URL so that its connections use this link. */
function through({ port }: NetworkLink, url: string): string {
  const changed = new URL(url);
  changed.host = `127.0.0.1:${port}`;
  return changed.href;
}

function addressOf(url: string): { host: string; port: number } {
  const { hostname, port } = new URL(url);
  return { host: hostname, port: Number(port || 5432) };
}
