import TinyQueue from 'tinyqueue';

/** Assumptions of a simulation; times in milliseconds. */
export interface Assumptions {
  /** Time for a request on a server, which executes one request at a time. */
  readonly service: number;
  /** Time for a request and its answer on a client. */
  readonly client: number;
  /** Time of a round trip within a region. */
  readonly near: number;
  /** Time of a round trip between two regions. */
  readonly far: number;
}

/** Location of a process. */
export interface Place {
  readonly region: number;
}

/** A simulated Redis, with the holder of the key and the waiting processes. */
export class Server implements Place {
  owner: object | undefined;
  readonly line: object[] = [];
  busyUntil = 0;

  constructor(readonly region: number) {}
}

/** The simulated clock, messages and servers. A server executes one request after the other. */
export class World {
  now = 0;
  requests = 0;
  readonly #events = new TinyQueue<{ at: number; happen: () => void }>([], (a, b) => a.at - b.at);

  constructor(private readonly assumptions: Assumptions) {}

  after(delay: number, happen: () => void): void {
    this.#events.push({ at: this.now + delay, happen });
  }

  /** Sends a message, which takes half a round trip, plus or minus a tenth. */
  send(from: Place, to: Place, arrive: () => void): void {
    const { near, far } = this.assumptions;
    const trip = from.region === to.region ? near : far;
    this.after((trip / 2) * (0.9 + 0.2 * Math.random()), arrive);
  }

  /** Sends a request of a client to a server, which calls `act` and answers. */
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
