import type { Place, Server, World } from './world.js';

/** Counters of a simulation. */
export interface Tally {
  readonly waits: number[];
  /** Milliseconds from a release to the next acquisition. */
  readonly handOvers: number[];
  releasedAt: number | undefined;
}

/**
 * Largest number of times that a caller asks the other nodes again, if the first node granted the lock but too few of
 * the others did; as in `lib/redlock/acquire.ts`.
 */
const MOST_ROUNDS = 4;

/** A process that acquires the same lock repeatedly. */
export abstract class Instance implements Place {
  private asked = 0;

  constructor(
    readonly region: number,
    protected readonly world: World,
    protected readonly servers: readonly Server[],
    private readonly hold: number,
    private readonly tally: Tally,
  ) {}

  want(): void {
    this.asked = this.world.now;
    this.acquire();
  }

  /** Asks for the lock; calls {@link acquired} when the process has it. */
  protected abstract acquire(): void;

  /** Runs on a server after the release of the lock. */
  protected abstract released(server: Server): void;

  protected get quorum(): number {
    return Math.floor(this.servers.length / 2) + 1;
  }

  protected acquired(): void {
    const { world, tally } = this;
    tally.waits.push(world.now - this.asked);
    if (tally.releasedAt !== undefined) tally.handOvers.push(world.now - tally.releasedAt);
    tally.releasedAt = undefined;
    world.after(this.hold, () => {
      tally.releasedAt = world.now;
      this.release(() => this.want());
    });
  }

  protected take(server: Server): boolean {
    server.owner ??= this;
    return server.owner === this;
  }

  /** Releases the lock on all servers; calls `done` when a quorum has confirmed. */
  protected release(done: () => void): void {
    let confirmed = 0;
    for (const server of this.servers) {
      const act = (): void => {
        if (server.owner !== this) return;
        server.owner = undefined;
        this.released(server);
      };
      this.world.ask(this, server, act, () => {
        if (++confirmed === this.quorum) done();
      });
    }
  }
}

/** A process that polls all servers. */
export class Poller extends Instance {
  protected acquire(): void {
    let granted = 0;
    let answered = 0;
    for (const server of this.servers) {
      this.world.ask(
        this,
        server,
        () => this.take(server),
        (mine) => {
          if (mine) granted++;
          if (++answered < this.servers.length) return;
          if (granted >= this.quorum) this.acquired();
          else this.release(() => this.world.after(200 + 100 * Math.random(), () => this.acquire()));
        },
      );
    }
  }

  protected released(): void {}
}

/** A process that waits in the queue of the first server. After the grant of that server it asks the other servers. */
export class Waiter extends Instance {
  protected acquire(): void {
    const [gate] = this.servers as [Server];
    const enter = (): boolean => {
      const [next] = gate.line;
      if (gate.owner === undefined && (next === undefined || next === this)) {
        if (next) gate.line.shift();
        return this.take(gate);
      }
      if (!gate.line.includes(this)) gate.line.push(this);
      return false;
    };
    this.world.ask(this, gate, enter, (granted) => {
      if (granted) this.#askRest(this.servers.slice(1), 1, 0);
    });
  }

  #askRest(servers: readonly Server[], had: number, round: number): void {
    let granted = had;
    let answered = 0;
    const refusing: Server[] = [];
    if (granted >= this.quorum) return this.acquired();
    for (const server of servers) {
      this.world.ask(
        this,
        server,
        () => this.take(server),
        (mine) => {
          answered++;
          if (!mine) refusing.push(server);
          else if (++granted === this.quorum) return this.acquired();
          if (answered < servers.length || granted >= this.quorum) return undefined;
          if (round < MOST_ROUNDS)
            return this.world.after(2 ** round, () => this.#askRest(refusing, granted, round + 1));
          return this.release(() => this.acquire());
        },
      );
    }
  }

  /** The first server sends a message to the next process of its queue. */
  protected released(server: Server): void {
    const [next] = server.line;
    if (next instanceof Waiter) this.world.send(server, next, () => next.acquire());
  }
}
