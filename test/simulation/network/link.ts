import type { Random } from '../world/random.js';
import type { SimulatedProcess } from '../world/process.js';
import type { Command } from '../node/commands.js';
import type { Server } from '../node/server.js';

/** The direction of a message: `up` to the server, `down` to the client. */
export type Direction = 'up' | 'down';

/** The end of a connection for its client. Bytes that are under way are lost, or arrive, perhaps much later. */
export interface Cut {
  readonly bytes: 'lost' | 'arrive' | 'late';
  /** Milliseconds by which late bytes are late. */
  readonly late: number;
}

/** A connection as its link sees it. */
export interface Carried {
  /** The client closes. Bytes that are under way still arrive. */
  close(): void;
  /** The connection ends for the client. Its bytes under way are lost, or still arrive. */
  cut(cut: Cut): void;
  /** A middle box forgets the connection. Both sides believe that it is open. */
  forget(): void;
  /** A direction of the link is no longer blocked. */
  unblocked(): void;
}

/** The path between one process and one server, for all their connections. */
export class Link {
  readonly random: Random;
  readonly connections = new Set<Carried>();
  /** Largest further delay of a message in milliseconds. */
  extraDelay = 0;
  /** The part of messages that TCP has to send again. */
  loss = 0;
  /** Called when the process sends a command. */
  onSend: ((command: Command) => void) | undefined;
  readonly #delay: number;
  readonly #blockedUntil = { up: -1, down: -1 };

  /** @param latency - the longest usual delay of a message in milliseconds */
  constructor(
    readonly process: SimulatedProcess,
    readonly server: Server,
    latency = 1.5,
  ) {
    this.random = process.world.random(`link:${process.name}:${server.name}`);
    this.#delay = this.random.between(0.1, latency);
  }

  /** The delay of the next message. */
  delay(): number {
    const { random } = this;
    let delay = this.#delay * random.between(0.7, 1.3);
    if (this.extraDelay > 0) delay += random.next() * this.extraDelay;
    if (random.chance(0.02)) delay += random.between(0, 5);
    if (this.loss > 0 && random.chance(this.loss)) delay += 200 * random.whole(1, 3);
    return delay;
  }

  /** Lets no message pass for a while; TCP sends them again afterwards. */
  block(direction: Direction | 'both', duration: number): void {
    const { world } = this.process;
    for (const each of direction === 'both' ? (['up', 'down'] as const) : [direction])
      this.#blockedUntil[each] = Math.max(this.#blockedUntil[each], world.time + duration);
    world.after(duration + 0.001, () => this.#unblock());
  }

  isBlocked(direction: Direction): boolean {
    return this.process.world.time < this.#blockedUntil[direction];
  }

  /** Ends every disturbance of the link. */
  heal(): void {
    this.extraDelay = 0;
    this.loss = 0;
    this.#blockedUntil.up = -1;
    this.#blockedUntil.down = -1;
    this.#unblock();
  }

  #unblock(): void {
    for (const connection of [...this.connections]) connection.unblocked();
  }

  /** `true` if messages pass in both directions, with the usual delay. */
  get isClear(): boolean {
    return !this.isBlocked('up') && !this.isBlocked('down') && this.extraDelay === 0 && this.loss === 0;
  }
}
