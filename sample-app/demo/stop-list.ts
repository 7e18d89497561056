type Stop = () => Promise<void>;

/** A list of processes and files that must be stopped or removed in any case. */
export class StopList {
  private readonly stops: Stop[] = [];
  private stopped: Promise<void> | undefined;

  /**
   * Adds the clean-up of something that has just started.
   *
   * @throws Error after the list was stopped; the new entry is then stopped, too
   */
  async add(stop: Stop): Promise<void> {
    if (this.stopped) {
      await stop();
      throw new Error('interrupted');
    }
    this.stops.push(stop);
  }

  /** Stops all entries, the last one first, even if some of them fail. */
  stopAll(): Promise<void> {
    return (this.stopped ??= this.stopEach());
  }

  private async stopEach(): Promise<void> {
    for (let stop = this.stops.pop(); stop; stop = this.stops.pop()) {
      await stop().catch((error: Error) => console.error(`While stopping: ${error.message}`));
    }
  }
}
