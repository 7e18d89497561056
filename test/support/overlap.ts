import { setImmediate as turn } from 'node:timers/promises';

/** Counts how many pieces of work run at the same time. */
export class Overlap {
  runs = 0;
  most = 0;
  running = 0;

  /** Work that gives other work every chance to run beside it. */
  async work(turns = 5): Promise<void> {
    this.runs++;
    this.running++;
    this.most = Math.max(this.most, this.running);
    for (let i = 0; i < turns; i++) await turn();
    this.running--;
  }
}
