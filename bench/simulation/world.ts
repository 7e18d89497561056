import TinyQueue from 'tinyqueue';

/** Figures that a simulation rests on; times in milliseconds. */
export interface Assumptions {
  /** Time that a server works on a request; it works on one at a time. */
  readonly service: number;
  /** Time that a client works on a request and its answer. */
  readonly client: number;
  /** A round trip within a region. */
  readonly near: number;
  /** A round trip between two regions. */
  readonly far: number;
}

/** Location of a process. */
export interface Place {
  readonly region: number;
}

/** A Redis: who holds the key, and who waits for it. */
export class Server implements Place {
  owner: object | undefined;
  readonly line: object[] = [];
  busyUntil = 0;

  constructor(readonly region: number) {}
}

/** Time, and what happens in it: messages that travel, and servers that work on them one after the other. */
export class World {
  now = 0;
  requests = 0;
  readonly #events = new TinyQueue<{ at: number; happen: () => void }>([], (a, b) => a.at - b.at);

  constructor(private readonly assumptions: Assumptions) {}

  after(delay: number, happen: () => void): void {
    this.#events.push({ at: this.now + delay, happen });
  }

  /** A message arrives; it takes half a round trip, give or take a tenth. */
  send(from: Place, to: Place, arrive: () => void): void {
    const { near, far } = this.assumptions;
    const trip = from.region === to.region ? near : far;
    this.after((trip / 2) * (0.9 + 0.2 * Math.random()), arrive);
  }

  /** A client asks a server, which does something and answers. */
  ask<T>(client: Place, server: Server, act: () => T, answered: (answer: T) => void): void {
    this.requests++;
    this.send(client, server, () => {
      server.busyUntil = Math.max(server.busyUntil, this.now) + this.assumptions.service;
      this.after(server.busyUntil - this.now, () => {
        const answer = act();
        this.send(server, client, () => this.after(this.assumptions.client, () => answered(answer)));
      });
    });
  }

  run(until: number): void {
    for (let event = this.#events.pop(); event && event.at <= until; event = this.#events.pop()) {
      this.now = event.at;
      event.happen();
    }
  }
}
