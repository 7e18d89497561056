import type { Message, Peer, Reply } from '../node/messages.js';
import type { Carried, Cut, Direction, Link } from './link.js';

/** The events of a connection, in the event loop of the process. */
export interface ConnectionEvents {
  opened(): void;
  refused(): void;
  received(reply: Reply): void;
  /** The other side has closed, or the connection was cut. */
  closed(): void;
}

/** Milliseconds until TCP gives up a forgotten connection, with the option `keepAlive` of a client. */
export const FORGOTTEN_FOR_MS = 40_000;

/** A TCP connection: within one direction messages arrive in order, and each once. */
export class Connection implements Carried, Peer {
  readonly channels = new Set<string>();
  isOpen = true;
  #isServerOpen = false;
  /** `true` when a middle box has forgotten the connection: nothing arrives, and nobody is told. */
  #isForgotten = false;
  readonly #lastArrival = { up: 0, down: 0 };
  readonly #waiting: Record<Direction, (() => void)[]> = { up: [], down: [] };
  /** Messages to the server arrive at this time at the earliest. */
  #lateUntil = -1;

  constructor(
    readonly link: Link,
    private readonly client: ConnectionEvents,
  ) {
    link.connections.add(this);
    this.#carry('up', () => this.#arrived());
  }

  send(message: Message): void {
    if ('command' in message) this.link.onSend?.(message.command);
    this.#carry('up', () => {
      if (this.#isServerOpen && this.link.server.isUp) this.link.server.receive(this, message);
    });
  }

  reply(reply: Reply): void {
    if (this.#isServerOpen) this.#carry('down', () => this.#tell(() => this.client.received(reply)));
  }

  close(): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    this.#carry('up', () => this.#endServer());
  }

  cut(cut: Cut): void {
    if (!this.isOpen) return;
    const { world } = this.link.process;
    if (cut.bytes === 'lost') this.#endServer();
    else if (cut.bytes === 'arrive') this.#carry('up', () => this.#endServer());
    else {
      this.#lateUntil = world.time + cut.late;
      for (const happen of this.#waiting.up.splice(0)) world.at(this.#lateUntil, happen);
      world.at(this.#lateUntil + 1, () => this.#endServer());
    }
    this.link.process.post(() => this.#lost());
  }

  forget(): void {
    const { process } = this.link;
    this.#isForgotten = true;
    process.world.after(FORGOTTEN_FOR_MS, () => {
      this.#endServer();
      process.post(() => this.#lost());
    });
  }

  serverGone(): void {
    this.#isServerOpen = false;
    this.link.server.connections.delete(this);
    this.#carry('down', () => this.#tell(() => this.#lost()));
  }

  unblocked(): void {
    for (const direction of ['up', 'down'] as const) {
      if (this.link.isBlocked(direction)) continue;
      const waiting = this.#waiting[direction].splice(0);
      // TCP sends again after a time that has grown with each failure.
      const again = waiting.length > 0 ? this.link.random.scaled(1, 1_500) : 0;
      for (const happen of waiting) this.#carry(direction, happen, again);
    }
  }

  #carry(direction: Direction, happen: () => void, further = 0): void {
    if (this.#isForgotten) return;
    const { world } = this.link.process;
    if (this.link.isBlocked(direction) || (this.#waiting[direction].length > 0 && further === 0)) {
      this.#waiting[direction].push(happen);
      return;
    }
    const time = Math.max(this.#lastArrival[direction] + 0.0001, world.time + this.link.delay() + further);
    this.#lastArrival[direction] = time;
    world.at(time, () => {
      if (this.#isForgotten) return;
      if (direction === 'up' && this.#lateUntil > world.time) world.at(this.#lateUntil, happen);
      else if (this.link.isBlocked(direction)) this.#waiting[direction].push(happen);
      else happen();
    });
  }

  #arrived(): void {
    if (!this.isOpen) return;
    const { server } = this.link;
    if (!server.isUp) {
      this.#carry('down', () =>
        this.#tell(() => {
          this.isOpen = false;
          this.link.connections.delete(this);
          this.client.refused();
        }),
      );
      return;
    }
    this.#isServerOpen = true;
    server.connections.add(this);
    this.#carry('down', () => this.#tell(() => this.client.opened()));
  }

  #tell(happen: () => void): void {
    if (!this.isOpen) return;
    this.link.process.post(() => {
      if (this.isOpen) happen();
    });
  }

  #lost(): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    this.link.connections.delete(this);
    this.client.closed();
  }

  #endServer(): void {
    this.#isServerOpen = false;
    this.link.server.connections.delete(this);
    this.link.connections.delete(this);
  }
}
