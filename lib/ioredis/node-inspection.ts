import { elapsedSince, type Instant, now } from '../redlock/clock.js';
import { type CommandChannel, isRefusal } from './command-channel.js';
import type { Fleet } from './fleet.js';
import { bornKey } from './lock-key.js';
import { NO_SUCH_DATABASE, unsafeBecause, weakBecause } from './node-checks.js';
import { type NodeReport, parseInfo } from './node-report.js';
import { BIRTH } from './scripts.js';
import { ServerClock } from './server-clock.js';

/** Why a server must not be used for locks, as it is. */
export class UnsafeNodeError extends Error {
  override readonly name = 'UnsafeNodeError';
}

/** How long a server that was not fit is taken to be so, in milliseconds, before it is asked again. */
const UNFIT_FOR_MS = 1_000;

/**
 * Asks every new connection of a node what it leads to, before the node votes: whether that is fit for locks (S17), how
 * long it has been up (S12), and what its clock shows (S16).
 *
 * Once for a connection and not with every vote: a server that restarts ends its connections.
 */
export class NodeInspection {
  readonly clock = new ServerClock();
  /** Counts the connections of the node, one after the other. */
  connection = 0;
  /** What was found at the last connection to make locks weaker than they could be. */
  weaknesses: readonly string[] = [];
  #pending: Promise<void> | undefined;
  #unfit: { readonly reason: Error; readonly since: Instant } | undefined;
  #uptime: { readonly least: number; readonly at: Instant } | undefined;
  #runId: string | undefined;

  constructor(
    private readonly name: string,
    private readonly channel: CommandChannel,
    private readonly fleet: Fleet,
  ) {}

  /** Whether the node can be kept from voting after a restart. The marker and the keys of a Cluster lie in different slots. */
  get guarded(): boolean {
    return this.fleet.guarded && !this.channel.client.isCluster;
  }

  /** A new connection is ready. */
  begin(): void {
    const connection = ++this.connection;
    this.clock.forget();
    const end = (reason?: Error): void => {
      // A newer connection has its own inspection.
      if (connection !== this.connection) return;
      this.#unfit = reason && { reason, since: now() };
      this.#pending = undefined;
    };
    this.#pending = this.#inspect().then(() => end(), end);
  }

  /** Whether the node may vote, as far as is known now; otherwise {@link passed} waits, or says why not. */
  get isFit(): boolean {
    return !this.#pending && !this.#unfit;
  }

  /**
   * Waits for the inspection that is under way. A server that was not fit may be by now, without ending the connection:
   * a replica was made master, there is memory again.
   *
   * @throws why the node must not vote
   */
  async passed(): Promise<void> {
    if (!this.#pending && this.#unfit && elapsedSince(this.#unfit.since) > UNFIT_FOR_MS) this.begin();
    while (this.#pending) await this.#pending;
    if (this.#unfit) throw this.#unfit.reason;
  }

  /** Milliseconds since the server started, as far as is known; `Infinity` when it would not say. */
  age(): number {
    return this.#uptime ? this.#uptime.least + elapsedSince(this.#uptime.at) : Infinity;
  }

  async #inspect(): Promise<void> {
    // Each node of a Cluster would answer for itself.
    const report = this.channel.client.isCluster ? undefined : await this.#report();
    if (this.fleet.guarded && !this.guarded) {
      this.fleet.warnOnce(
        `${this.name}: restartGuard does not work on a Cluster; set appendonly to yes and appendfsync to always`,
      );
    }
    // SELECT was sent before INFO, so it is known by now whether it failed.
    if (this.channel.lacksDatabase) this.#refuse(NO_SUCH_DATABASE);
    if (report) {
      this.#uptime = { least: report.uptime, at: now() };
      this.#refuseUnsafe(report);
      const appendfsync = report.appendOnly && !this.guarded ? await this.#appendfsync() : undefined;
      this.weaknesses = weakBecause(report, appendfsync, this.guarded);
      for (const weakness of this.weaknesses) {
        this.fleet.warnOnce(`${this.name}: ${weakness}`);
      }
    }
    // Leaves the marker by which a loss of data will be noticed (S12).
    const keys = this.guarded ? [bornKey(this.fleet.keyPrefix)] : [];
    this.clock.learn(Number(await this.channel.run(BIRTH, keys, [])));
  }

  async #report(): Promise<NodeReport | undefined> {
    try {
      return parseInfo(await this.channel.send(() => this.channel.client.info()));
    } catch (error) {
      if (!isDenied(error)) throw error;
      this.fleet.warnOnce(
        `${this.name}: its user may not run INFO, so a replica, a server listed twice, eviction, and a restart from ` +
          'old data go unnoticed; allow it with ACL SETUSER <user> +info',
      );
      return undefined;
    }
  }

  #refuseUnsafe(report: NodeReport): void {
    const { runIds } = this.fleet;
    if (this.#runId !== undefined) runIds.delete(this.#runId);
    // Not every server that speaks the protocol has a run id.
    const unsafe = unsafeBecause(report, report.runId === '' ? undefined : runIds.get(report.runId));
    if (unsafe !== undefined) {
      this.#runId = undefined;
      this.#refuse(unsafe);
    }
    this.#runId = report.runId;
    runIds.set(report.runId, this.name);
  }

  #refuse(reason: string): never {
    this.fleet.warnOnce(`${this.name} cannot be used for locks: ${reason}`);
    throw new UnsafeNodeError(`cannot be used for locks: ${reason}`);
  }

  /** `undefined` when the server does not say, as many that are hosted by others. */
  async #appendfsync(): Promise<string | undefined> {
    try {
      const [, value] = (await this.channel.send(() =>
        this.channel.client.config('GET', 'appendfsync'),
      )) as string[];
      return value;
    } catch (error) {
      if (isRefusal(error)) return undefined;
      throw error;
    }
  }
}

/** INFO is forbidden, or renamed. Other errors pass: the server may be busy. */
function isDenied(error: unknown): boolean {
  return isRefusal(error) && /^NOPERM|unknown command/i.test(error.message);
}
