import type { Command } from '../node/commands.js';
import type { FaultEvent, Moment } from './faults.js';

/** The faults that wait until a process sends a request. */
export class Moments {
  #waiting: FaultEvent[] = [];

  /** @param happen - makes a fault happen when the request is under way */
  constructor(private readonly happen: (event: FaultEvent) => void) {}

  wait(event: FaultEvent): void {
    this.#waiting.push(event);
  }

  /** A process sends a command to a node. */
  sends(process: number, node: number, command: Command): void {
    if (this.#waiting.length === 0) return;
    const moment = momentOf(command);
    const concerns = (event: FaultEvent): boolean =>
      event.on === moment &&
      (!('process' in event) || (event.process ?? process) === process) &&
      (!('node' in event) || (event.node ?? node) === node);
    const due = this.#waiting.filter(concerns);
    if (due.length === 0) return;
    this.#waiting = this.#waiting.filter((event) => !concerns(event));
    for (const event of due) this.happen(event);
  }

  /** No further fault happens. */
  end(): void {
    this.#waiting = [];
  }
}

function momentOf(command: Command): Moment | Command['name'] {
  const heals = command.name === 'acquire' && command.requests.some((request) => request.heals === true);
  return heals ? 'heal' : command.name;
}
