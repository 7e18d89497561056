type Stop = () => Promise<void>;

/** Things that were started and must be stopped in any case. */
export class StopList {
  private readonly stops: Stop[] = [];
  private stopped: Promise<void> | undefined;

  /**
   * Notes how to stop something that has just been started.
   * @throws Error when everything is being stopped already; then this is stopped as well
   */
  async add(stop: Stop): Promise<void> {
    if (this.stopped) {
      await stop();
      throw new Error('interrupted');
    }
    this.stops.push(stop);
  }

  /** Stops everything, the last started first, all of it even if some of it fails. */
  stopAll(): Promise<void> {
    return (this.stopped ??= this.stopEach());
  }

  private async stopEach(): Promise<void> {
    for (let stop = this.stops.pop(); stop; stop = this.stops.pop()) {
      await stop().catch((error: Error) => console.error(`While stopping: ${error.message}`));
    }
  }
}
