import { setImmediate as turn } from 'node:timers/promises';

/** Counts concurrent runs of `work`. */
export class Overlap {
  runs = 0;
  most = 0;
  running = 0;

  /** Runs for some turns of the event loop, in which other runs can begin. */
  async work(turns = 5): Promise<void> {
    this.runs++;
    this.running++;
    this.most = Math.max(this.most, this.running);
    for (let i = 0; i < turns; i++) await turn();
    this.running--;
  }
}
