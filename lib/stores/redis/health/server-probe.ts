import { elapsedSince, type Instant, now } from '../../../core/clock.js';
import { UnfitStoreError } from '../../../core/errors.js';
import { ServerClock } from '../../../core/server-clock.js';
import { type CommandChannel, isRefusal } from '../connection/command-channel.js';
import { addressOf } from '../connection/connection.js';
import { mastersOf, type Server } from '../connection/driver.js';
import type { StoreContext } from '../store-context.js';
import { identityKey, markerKey, probeKey } from '../lock-key.js';
import { NO_INFO, NO_SUCH_DATABASE, unsafeBecause, untoldBy, weakBecause } from './server-weaknesses.js';
import { type ServerReport, parseInfo } from './server-report.js';
import type { YoungBecause } from '../../../core/errors.js';
import type { NodeAge } from '../scripts/birth.js';
import { nodeScripts } from '../scripts/node-scripts.js';
import type { Packed } from '../scripts/script.js';

/** Milliseconds until a server that was not fit is checked again. */
const UNFIT_FOR_MS = 1_000;

/**
 * Milliseconds within which each master of a Cluster must answer a check. After that time the Cluster may vote without
 * the answer.
 */
const MASTER_LIMIT_MS = 2_000;

/**
 * Milliseconds without an answer, before a loss was noticed, that count at most. Our connections and those of GLIDE are
 * asked every 5 s, and are lost after 5 s without an answer. Other clients of the application may be silent for hours before
 * a loss that is noticed at once. In these hours the address may have led to another server and back.
 */
const MOST_SILENCE_MS = 10_000;

/** The report of one server, and its setting `appendfsync`. */
interface Answer {
  /** The address of a master of a Cluster; empty for a node that is one server. */
  readonly which: string;
  readonly report: ServerReport;
  readonly appendfsync: string | undefined;
}

/**
 * Checks every new connection of a node before the node votes: whether its server is fit for locks (S17), its uptime
 * (S12), and its clock (S16).
 *
 * One check for each connection is enough, because a server that restarts ends its connections. The masters of a
 * Cluster can change without a new connection of the client. The Cluster is then checked again, and still votes during
 * that check.
 */
export class ServerProbe {
  readonly clock = new ServerClock();
  /** The number of connections of the node so far, which identifies the present connection. */
  connection = 0;
  /** Weak settings that the last check found. */
  weaknesses: readonly string[] = [];
  #pending: Promise<void> | undefined;
  /** Settles when the check ends, is replaced by another one, or hangs. */
  #wait: Promise<void> | undefined;
  #endWait: (() => void) | undefined;
  #unfit: { readonly reason: Error; readonly since: Instant } | undefined;
  /** The shortest possible uptime of the server, and the `performance.now()` at which it was measured. */
  #uptime: { readonly least: number; readonly at: number } | undefined;
  /** The time for which the node has had its data, and the `performance.now()` at which a server told it. */
  #data: (NodeAge & { readonly at: number }) | undefined;
  /** `true` if the last check got the report of the server. */
  #knowsServer = false;
  /** The run id of the server to which the former connection led, and the time of its last answer, or later. */
  #former: { readonly runId: string; readonly heardAt: number } | undefined;
  /** The servers of the last check. */
  #servers: readonly Server[] = [];
  /** The run ids that this node has added to `context.runIds`. */
  #runIds: readonly string[] = [];

  constructor(
    private readonly name: string,
    private readonly channel: CommandChannel,
    private readonly context: StoreContext,
  ) {
    channel.onHang = (): void => this.#beginWait();
  }

  /**
   * `true` if the restart guard applies to the node. It cannot apply to a Cluster, where the guard's marker and the
   * locks are in different hash slots.
   */
  get guarded(): boolean {
    return this.context.guarded && !this.channel.client.isCluster;
  }

  /** `true` if a restart may forget locks, so that missing persistence is no weakness. */
  get #mayForget(): boolean {
    return this.guarded || (this.context.mayForget ?? false);
  }

  /** The key of the node's identity; `undefined` without the guard, or without the right to run INFO (S28). */
  get identity(): string | undefined {
    return this.guarded && this.#knowsServer ? identityKey(this.context.keyPrefix) : undefined;
  }

  /** The cause if the node had the data of another server at the last check (S28). */
  get cause(): YoungBecause | undefined {
    return this.#data?.cause;
  }

  /**
   * Called when the connection is lost. A loss may be noticed some time after it. So the time of the last answer counts:
   * after it this process got no vote of that server.
   */
  lost(): void {
    const [runId = ''] = this.#runIds;
    // A server that no check has compared with its successor yet stays the former one.
    const quietFor = Math.min(this.channel.quietFor, MOST_SILENCE_MS);
    if (runId !== '') this.#former ??= { runId, heardAt: performance.now() - quietFor };
  }

  /** Starts the check of a new connection. */
  begin(): void {
    this.connection++;
    this.clock.forget();
    this.#pending = this.#conclude(this.#inspect());
    this.#beginWait();
  }

  #beginWait(): void {
    const endBefore = this.#endWait;
    const ended = new Promise<void>((resolve) => (this.#endWait = resolve));
    this.#wait = this.#pending && Promise.race([this.#pending, ended]);
    endBefore?.();
  }

  /** Called when the client of a Cluster has read the list of masters. */
  refreshed(): void {
    const servers = this.#serversNow();
    const same =
      servers.length === this.#servers.length && servers.every((one) => this.#servers.includes(one));
    // If the client is not ready yet, its new connection will be checked anyway.
    if (same || !this.channel.canSend) return;
    if (this.#pending) this.begin();
    else void this.#conclude(this.#inspectServers());
  }

  /** `true` if the node may vote, as far as is known now. Otherwise {@link passed} waits, or throws the reason. */
  get isFit(): boolean {
    return !this.#pending && !this.#unfit;
  }

  /**
   * Waits for the current check, however long it takes.
   *
   * @throws the reason why the node must not vote
   */
  async concluded(): Promise<void> {
    while (this.#pending) await this.#pending;
    if (this.#unfit) throw this.#unfit.reason;
  }

  /**
   * Waits for the current check, but not on a connection that hangs: a passed-in client may never fail the check, and all
   * requests would stay in memory. A server that was not fit is checked again after a second, even on the same
   * connection: meanwhile a replica may have been promoted, or memory may have been freed.
   *
   * @throws the reason why the node must not vote
   */
  async passed(): Promise<void> {
    if (!this.#pending && this.#unfit && elapsedSince(this.#unfit.since) > UNFIT_FOR_MS) this.begin();
    while (this.#pending) {
      const { hanging } = this.channel;
      if (hanging) throw hanging;
      await this.#wait;
    }
    if (this.#unfit) throw this.#unfit.reason;
  }

  /**
   * The shortest possible time in milliseconds for which the server has run and has had its data; `Infinity` if the
   * server does not report it. Measured with the monotonic clock: a wall clock that is set forward must not end the guard
   * (S12).
   */
  age(): number {
    const uptime = this.#uptime ? this.#uptime.least + performance.now() - this.#uptime.at : Infinity;
    return this.#data ? Math.min(uptime, this.#data.age + performance.now() - this.#data.at) : uptime;
  }

  /**
   * Asks the server how long it has had its data, and sets a missing marker: if the marker is missing at a later check,
   * the server has lost its data (S12).
   */
  async meet(): Promise<NodeAge> {
    const marker = this.guarded ? markerKey(this.context.keyPrefix) : undefined;
    const asked = this.#former;
    const former = asked && { runId: asked.runId, silentFor: performance.now() - asked.heardAt };
    const at = performance.now();
    const told = await this.#learnClock(nodeScripts.birth.pack(marker, this.identity, Date.now(), former));
    if (marker === undefined) return { age: Infinity, cause: undefined };
    // A connection that was lost meanwhile has set another former server, which the next check compares.
    if (this.#former === asked) this.#former = undefined;
    this.#data = { age: told.age, cause: told.cause, at };
    return { age: this.age(), cause: told.cause };
  }

  /** Reads the server's clock: a cheap request, which shows whether the connection works. */
  async ping(): Promise<void> {
    await this.#learnClock([0]);
  }

  async #learnClock(packed: Packed): Promise<NodeAge> {
    const told = nodeScripts.birth.read(await this.channel.run(nodeScripts.birth.script, packed));
    this.clock.learn(told.micros / 1_000);
    return told;
  }

  async #conclude(inspection: Promise<void>): Promise<void> {
    const { connection } = this;
    const reason = await inspection.then(
      () => undefined,
      (error: Error) => error,
    );
    // Ignore the result for a former connection: the newer connection has its own check.
    if (connection !== this.connection) return;
    this.#unfit = reason && { reason, since: now() };
    this.#pending = undefined;
  }

  async #inspect(): Promise<void> {
    if (this.context.guarded && !this.guarded) {
      this.context.warnOnce(
        `${this.name}: restartGuard does not work on a Cluster; set appendonly to yes and appendfsync to always`,
      );
    }
    await this.#inspectServers();
    await this.#inTime(Promise.all([this.meet(), this.#tryKinds()]));
  }

  /** Checks the user's rights to the commands of shared locks and permits; exclusive locks work without them. */
  async #tryKinds(): Promise<void> {
    const key = probeKey(this.context.keyPrefix);
    const { script, advice: adviceOn } = nodeScripts.probeKinds;
    const advice = await this.channel.run(script, [1, key]).then(adviceOn, (error: unknown) => {
      // Ignore an error of the server that affects every script: an acquisition will report it.
      if (isRefusal(error)) return undefined;
      throw error;
    });
    if (advice === undefined) return;
    this.weaknesses = [...this.weaknesses, advice];
    this.context.warnOnce(`${this.name}: ${advice}`);
  }

  async #inspectServers(): Promise<void> {
    const servers = (this.#servers = this.#serversNow());
    const answers: (Answer | undefined)[] = [];
    const asking = Promise.all(servers.map(async (server) => answers.push(await this.#ask(server))));
    const judge = (): void => {
      if (servers === this.#servers) this.#judge(answers);
    };
    if (!(await this.#inTime(asking))) void this.#conclude(asking.then(judge));
    judge();
  }

  #serversNow(): readonly Server[] {
    return mastersOf(this.channel.client);
  }

  /**
   * Waits for an answer. On a Cluster there is a time limit, because one master may hang while the others can still
   * store locks. Resolves to `true` if the answer came in time.
   */
  async #inTime(answer: Promise<unknown>): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined;
    const limit = new Promise<boolean>((resolve) => {
      if (!this.channel.client.isCluster) return;
      // If the event loop was blocked, the answer may have arrived, but Node has not read it yet. `setImmediate` lets
      // Node read the answer before the time limit takes effect.
      timer = setTimeout(setImmediate, MASTER_LIMIT_MS, () => resolve(false)).unref();
    });
    try {
      return await Promise.race([answer.then(() => true), limit]);
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * Asks a server for its report; `undefined` if the user has no right to ask, or if a master of a Cluster is
   * unreachable.
   */
  async #ask(server: Server): Promise<Answer | undefined> {
    try {
      const report = parseInfo(await this.channel.send(() => server.info()));
      const appendfsync = report.appendOnly && !this.#mayForget ? await this.#appendfsync(server) : undefined;
      const which = this.channel.client.isCluster ? `master ${addressOf(server)}: ` : '';
      return { which, report, appendfsync };
    } catch (error) {
      if (!isDenied(error)) {
        if (this.channel.client.isCluster) return undefined;
        throw error;
      }
      this.context.warnOnce(`${this.name}: ${NO_INFO}`);
      return undefined;
    }
  }

  #judge(answers: readonly (Answer | undefined)[]): void {
    if (this.channel.lacksDatabase) this.#refuse(NO_SUCH_DATABASE);
    const { runIds } = this.context;
    for (const runId of this.#runIds) runIds.delete(runId);
    this.#runIds = [];
    const known = answers.filter((answer) => answer !== undefined);
    this.#knowsServer = known.length > 0;
    for (const { which, report } of known) {
      this.#uptime = { least: report.uptime, at: performance.now() };
      // The client of a Cluster itself finds the masters, so their mode and role need no check. The check that no other
      // node is the same server is still needed.
      const fit = which === '' ? report : ({ ...report, mode: 'standalone', role: 'master' } as const);
      // Some servers that speak the Redis protocol have no run id.
      const unsafe = unsafeBecause(fit, report.runId === '' ? undefined : runIds.get(report.runId));
      if (unsafe !== undefined) this.#refuse(`${which}${unsafe}`);
    }
    this.#runIds = known.map(({ report }) => report.runId);
    for (const runId of this.#runIds) runIds.set(runId, this.name);
    this.weaknesses = known.flatMap(({ which, report, appendfsync }) => [
      ...(which === '' ? untoldBy(report) : []),
      ...weakBecause(report, appendfsync, this.#mayForget).map((weakness) => `${which}${weakness}`),
    ]);
    for (const weakness of this.weaknesses) this.context.warnOnce(`${this.name}: ${weakness}`);
  }

  #refuse(reason: string): never {
    this.context.warnOnce(`${this.name} cannot be used for locks: ${reason}`);
    throw new UnfitStoreError(`cannot be used for locks: ${reason}`);
  }

  /** Asks for `appendfsync`; `undefined` if the server does not report it, as many managed servers do not. */
  async #appendfsync(server: Server): Promise<string | undefined> {
    try {
      const [, value] = (await this.channel.send(() => server.config('GET', 'appendfsync'))) as string[];
      return value;
    } catch (error) {
      if (isRefusal(error)) return undefined;
      throw error;
    }
  }
}

/** `true` if INFO is forbidden or renamed. Other errors, such as the errors of a busy server, are temporary. */
function isDenied(error: unknown): boolean {
  return isRefusal(error) && /^NOPERM|unknown command/i.test(error.message);
}
