import { createHash } from 'node:crypto';
import TinyQueue from 'tinyqueue';
import { EndlessError } from './host.js';
import { Random } from './random.js';

/** The time at which each world begins, in milliseconds since 1970. */
export const EPOCH = 1_800_000_000_000;

/** The number of events after which a run ends: something repeats itself without a pause. */
const MOST_EVENTS = 2_000_000;
/** The same for each simulated millisecond. Long worlds have few events in a second. */
const MOST_EVENTS_PER_MS = 1;

interface Event {
  readonly at: number;
  /** Events of the same time happen in the order in which they were planned. */
  readonly order: number;
  readonly happen: () => void;
}

/** Virtual time, random numbers, and the log of one world. One seed is one history. */
export class World {
  /** True time in milliseconds since the beginning of the world. */
  time = 0;
  events = 0;
  /** `true` when the run has to end early. */
  isStopped = false;
  readonly log: string[] = [];
  readonly #queue = new TinyQueue<Event>([], (a, b) => a.at - b.at || a.order - b.order);
  readonly #streams = new Map<string, Random>();
  readonly #hash = createHash('sha256');
  #unhashed = '';
  #planned = 0;

  /** @param keepsLog - `true` to keep the lines of the log, and not only their hash */
  constructor(
    readonly seed: string,
    private readonly keepsLog: boolean,
  ) {}

  /** The random numbers of one part of the world. */
  random(part: string): Random {
    let stream = this.#streams.get(part);
    if (!stream) this.#streams.set(part, (stream = new Random(`${this.seed}/${part}`)));
    return stream;
  }

  /** A number that is larger than all numbers before it: the order of events and timers of the same time. */
  order(): number {
    return this.#planned++;
  }

  at(time: number, happen: () => void): void {
    this.#queue.push({ at: Math.max(time, this.time), order: this.order(), happen });
  }

  after(delay: number, happen: () => void): void {
    this.at(this.time + delay, happen);
  }

  /** Writes a line into the log. */
  note(text: string): void {
    const line = `${(this.time / 1_000).toFixed(4).padStart(10)} ${text}`;
    this.#unhashed += `${line}\n`;
    if (this.#unhashed.length > 65_536) this.#digest();
    if (this.keepsLog) this.log.push(line);
  }

  #digest(): void {
    this.#hash.update(this.#unhashed);
    this.#unhashed = '';
  }

  /** The hash of the whole log. Call it once, at the end. */
  digest(): string {
    this.#digest();
    return this.#hash.digest('hex');
  }

  run(until: number): void {
    const most = MOST_EVENTS + until * MOST_EVENTS_PER_MS;
    for (;;) {
      const next = this.#queue.peek();
      if (!next || next.at > until || this.isStopped) break;
      this.#queue.pop();
      this.time = next.at;
      if (++this.events > most)
        throw new EndlessError(`more than ${Math.round(most)} events in ${Math.round(this.time)} ms`);
      next.happen();
    }
    if (!this.isStopped) this.time = until;
  }
}
