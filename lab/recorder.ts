import type { LabEvent, RunRecord } from './lab-event.js';

const PATIENCE_MS = 40_000;

/**
 * An expected event did not come, or a forbidden event came. This is not an error of the lab: the result of a run
 * differs from its description.
 */
export class NotAsDescribedError extends Error {}

/** Records the events of a run, and lets callers wait for events. */
export class Recorder {
  private readonly ending = new AbortController();
  private readonly pushed = new Set<string>();
  private readonly watchers = new Set<(event: LabEvent) => void>();

  constructor(
    readonly record: RunRecord,
    private readonly publish: (event: LabEvent) => void,
  ) {}

  /** Aborts when a user asks for an early end of the run. */
  get ended(): AbortSignal {
    return this.ending.signal;
  }

  end(): void {
    this.ending.abort(new NotAsDescribedError('the run was stopped'));
  }

  get length(): number {
    return this.record.events.length;
  }

  add(event: LabEvent): void {
    const complete = event.kind === 'pushed' ? { ...event, duplicates: this.repeated(event.jobs) } : event;
    this.record.events.push(complete);
    this.publish(complete);
    for (const watcher of this.watchers) watcher(complete);
  }

  /**
   * Number of duplicates according to the events of the instances. The outcome has the number of duplicates in the
   * queue instead.
   */
  get duplicates(): number {
    return this.record.events.reduce((sum, { duplicates }) => sum + (duplicates?.length ?? 0), 0);
  }

  /**
   * Resolves with the first event that fits; immediately, if the event is already recorded.
   *
   * @param from - number of recorded events that do not count
   * @throws NotAsDescribedError when no event that fits comes
   */
  async see(what: string, fits: (event: LabEvent) => boolean, from = 0): Promise<LabEvent> {
    const early = this.record.events.slice(from).find(fits);
    if (early) return early;
    let stop = (): unknown => undefined;
    try {
      return await new Promise<LabEvent>((resolve, reject) => {
        const watch = (event: LabEvent): void => void (fits(event) && resolve(event));
        const end = (): void => reject(this.ended.reason as Error);
        const timer = setTimeout(
          () => reject(new NotAsDescribedError(`${what} was not seen within ${PATIENCE_MS / 1_000} s`)),
          PATIENCE_MS,
        );
        this.watchers.add(watch);
        this.ended.addEventListener('abort', end);
        if (this.ended.aborted) end();
        stop = () => {
          clearTimeout(timer);
          this.watchers.delete(watch);
          this.ended.removeEventListener('abort', end);
        };
      });
    } finally {
      stop();
    }
  }

  private repeated(jobs: readonly string[]): string[] {
    const repeated = jobs.filter((job) => this.pushed.has(job));
    for (const job of jobs) this.pushed.add(job);
    return repeated;
  }
}
