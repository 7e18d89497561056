import type { Log } from '../../core/log.js';
import { quoted } from '../../core/printable.js';
import { type LeaderEvent, leaderEvents } from '../../telemetry/leader-event.js';
import type { LockRuntime } from '../lock-runtime.js';
import { Campaign, type LeaderTask } from './campaign.js';

/** The campaigns of one module instance, by their names. */
export class Leaders {
  readonly #campaigns = new Map<string, Campaign>();
  /** Campaigns that {@link start} has not started yet. */
  readonly #new = new Set<Campaign>();
  #hasStarted = false;
  /**
   * Listeners that are called when this process begins or ceases to lead, when it has released the lock of its term, and
   * when the application shuts down.
   */
  readonly #listeners = new Set<() => void>();

  /** @param log - never throws, because an error of the application's logger must not end a campaign */
  constructor(
    readonly runtime: LockRuntime,
    private readonly instance: string | undefined,
    private readonly log: Log,
  ) {}

  /** The names for which this application leads or campaigns. */
  get names(): readonly string[] {
    return [...this.#campaigns.keys()];
  }

  of(name: string): Campaign | undefined {
    return this.#campaigns.get(name);
  }

  /** @throws Error when another method has the same name: the two would never lead at the same time */
  add(task: LeaderTask): void {
    if (this.#campaigns.has(task.name)) {
      throw new Error(
        `@Leader(${quoted([task.name])}) of ${task.method}: another method of this application has @Leader with ` +
          'that name, so one of the two would always wait for the other. Give one of them another name, or call both ' +
          'from one method.',
      );
    }
    const tell = (event: Omit<LeaderEvent, 'instance'>): void => this.#tell(event);
    const campaign = new Campaign(task, this.runtime, this.log, tell, () => this.#changed());
    this.#campaigns.set(task.name, campaign);
    this.#new.add(campaign);
  }

  /** `true` when all methods with `@Leader` are known. */
  get hasStarted(): boolean {
    return this.#hasStarted;
  }

  /** Starts the campaigns that were added since the last call. */
  start(): void {
    this.#hasStarted = true;
    for (const campaign of this.#new) campaign.start();
    this.#new.clear();
  }

  /** Ends all terms when the application shuts down, so that their signals abort. The runtime waits for the methods. */
  stop(): void {
    for (const campaign of this.#campaigns.values()) void campaign.stop('shutdown');
    this.#changed();
  }

  /** @returns a function that removes the listener */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  #tell(event: Omit<LeaderEvent, 'instance'>): void {
    const told: LeaderEvent = this.instance === undefined ? event : { ...event, instance: this.instance };
    if (leaderEvents.hasSubscribers) leaderEvents.publish(told);
    this.runtime.telemetry.leader(told);
    this.#changed();
  }

  #changed(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}
