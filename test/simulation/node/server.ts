import type { Lease } from '../../../lib/core/lease.js';
import { Random } from '../world/random.js';
import type { Host } from '../world/host.js';
import { EPOCH, type World } from '../world/world.js';
import type { Message, Peer } from './messages.js';
import type { Answer, Command } from './commands.js';
import { WRITES } from './commands.js';
import type { Library } from './load.js';
import type { ServerIdentity } from './simulated-node.js';

/** Milliseconds that a node needs for a command. */
const SERVICE_MS = 0.02;

/** Entries of the journal that are older than this are dropped, except those of locks that are held. */
const JOURNAL_MS = 240_000;

/** The error with which a node refuses commands at present. */
export type Refusal = 'oom' | 'readonly' | 'loading' | 'misconf';

/** The number of new entries of the journal after which old ones are dropped. */
const JOURNAL_GROWTH = 4_096;

interface JournalEntry {
  readonly time: number;
  readonly wall: number;
  readonly command: Command;
  /** The messages that reached no client, so that the node passed over their waiters. */
  readonly unheard: string[];
}

/** A simulated Redis server: one thread, its clock, its data, and a journal from which it can be restored. */
export class Server implements Host {
  readonly name: string;
  readonly random: Random;
  isUp = true;
  /** Milliseconds by which replies are late at most. */
  slowBy = 0;
  refusal: Refusal | undefined;
  /** `true` while the server is a replica of another one. */
  isReplica = false;
  startedAt = -3_600_000;
  /** The time of the last loss of data, and of the last step of the clock. */
  disturbedAt = -Infinity;
  readonly connections = new Set<Peer>();
  commands = 0;
  /** Called with the ids of leases that `forceRelease` ends; for the judge. */
  onForce: ((ids: readonly string[]) => void) | undefined;
  /** Called with the lease of each request for a lock; for the judge. */
  onAcquire: ((lease: Lease) => void) | undefined;
  /** Called when a node stores a held lock again, with the token that it has there; for the judge. */
  onHealed: ((lease: Lease, token: number) => void) | undefined;
  #clockAhead: number;
  #restoringAt: number | undefined;
  #hungUntil = -1;
  #inbox: { readonly connection: Peer; readonly message: Message }[] = [];
  #isBusy = false;
  #runs = 0;
  #histories = 0;
  #identity: ServerIdentity;
  #journal: JournalEntry[] = [];
  #compactAt = JOURNAL_GROWTH;
  /** The last command that changed data, or that is repeated. */
  #running: JournalEntry | undefined;
  readonly #known = new Set<string>();
  #data: InstanceType<Library['SimulatedNode']>;

  constructor(
    readonly world: World,
    private readonly library: Library,
    readonly index: number,
    clockAhead: number,
  ) {
    this.name = `n${index}`;
    this.random = world.random(`server:${index}`);
    this.#clockAhead = clockAhead;
    this.#identity = this.#identityOf(this.#runs, false);
    this.#data = this.#fresh();
    this.#use();
  }

  monotonic(): number {
    return this.wall() - EPOCH;
  }

  wall(): number {
    return this.#restoringAt ?? this.#clockAt(this.world.time);
  }

  setTimeout(): never {
    throw new Error('a server has no timers');
  }

  setImmediate(): never {
    throw new Error('a server has no immediates');
  }

  get isHung(): boolean {
    return this.world.time < this.#hungUntil;
  }

  /** `true` if the server executes commands. */
  get answers(): boolean {
    return this.isUp && !this.isHung && !this.isReplica && this.refusal === undefined;
  }

  get #isReadOnly(): boolean {
    return this.isReplica || this.refusal === 'readonly';
  }

  step(by: number): void {
    this.#clockAhead += by;
    this.disturbedAt = this.world.time;
  }

  hang(duration: number): void {
    this.#hungUntil = Math.max(this.#hungUntil, this.world.time + duration);
    this.world.at(this.#hungUntil, () => this.#pump());
  }

  /** Ends every disturbance of the server. */
  heal(): void {
    this.slowBy = 0;
    this.refusal = undefined;
    this.lead();
    this.#hungUntil = -1;
    this.#pump();
  }

  /**
   * Ends the server, and starts it again.
   *
   * @param lost - milliseconds of the latest writes that are lost; `Infinity` for all
   */
  crash(down: number, lost: number): void {
    if (!this.isUp) return;
    this.isUp = false;
    this.#inbox = [];
    this.#hungUntil = -1;
    this.#loseConnections();
    this.world.after(down, () => {
      this.#restore(lost);
      this.isUp = true;
      this.startedAt = this.world.time;
      this.#runsAnew(false);
    });
  }

  /** A replica that lacks the latest writes takes over the address. It has run for a long time. */
  promote(lag: number): void {
    this.#loseConnections();
    this.#restore(lag);
    this.#runsAnew(true);
    this.startedAt = this.world.time - 3_600_000;
  }

  /** Becomes a replica of another server, whose data it gets. Its clients stay connected. */
  follow(master: Server | undefined): void {
    this.isReplica = true;
    this.disturbedAt = this.world.time;
    this.#data = this.#fresh();
    this.#journal = [];
    if (!master) return;
    // The identity in the data is that of the master.
    const own = this.#identity;
    this.#identity = master.#identity;
    this.#replay(master.#journal, this.#clockAt(-3_600_000));
    this.#identity = own;
  }

  /** Becomes a master again: its history is new, and it knows the former one (`master_replid2`). */
  lead(): void {
    if (!this.isReplica) return;
    this.isReplica = false;
    const history = `${this.name}-${++this.#histories}`;
    this.#identity = { ...this.#identity, history, wasReplica: true };
  }

  flush(): void {
    this.#restore(Infinity);
  }

  forgetScripts(): void {
    this.#known.clear();
  }

  /** The server program runs again, so its run id and its history of replication are new. */
  #runsAnew(wasReplica: boolean): void {
    this.isReplica = false;
    this.#identity = this.#identityOf(++this.#runs, wasReplica);
  }

  #identityOf(run: number, wasReplica: boolean): ServerIdentity {
    return { runId: `${this.name}-${run}`, history: `${this.name}-${++this.#histories}`, wasReplica };
  }

  #loseConnections(): void {
    for (const connection of [...this.connections]) connection.serverGone();
  }

  #restore(lost: number): void {
    if (lost > 0) this.disturbedAt = this.world.time;
    this.#known.clear();
    const until = this.world.time - lost;
    const kept = this.#journal.filter(({ time }) => time <= until);
    this.#data = this.#fresh();
    this.#journal = [];
    if (lost !== Infinity) this.#replay(kept, this.#clockAt(-3_600_000));
  }

  /** Repeats commands on a fresh node that was in use before. */
  #replay(journal: readonly JournalEntry[], since: number): void {
    this.#use(since);
    for (const entry of journal) {
      this.#restoringAt = entry.wall;
      this.#running = entry;
      this.#perform(entry.command);
      this.#journal.push(entry);
    }
    this.#restoringAt = undefined;
  }

  /** Makes the node one that has been in use for an hour: it has a marker, and then gets its identity. */
  #use(since = this.#clockAt(-3_600_000)): void {
    this.#restoringAt = since;
    this.#perform({ name: 'birth', marked: true });
    this.#perform({ name: 'birth', marked: true, wall: since });
    this.#restoringAt = undefined;
  }

  #fresh(): InstanceType<Library['SimulatedNode']> {
    return new this.library.SimulatedNode(
      (process, text) => this.#publish(`lock:wake:${process}`, text),
      () => this.#identity,
    );
  }

  #clockAt(time: number): number {
    return EPOCH + time + this.#clockAhead;
  }

  #publish(channel: string, text: string): number {
    // A command of the journal has the same effects as when it ran.
    if (this.#restoringAt !== undefined) return this.#running?.unheard.includes(channel + text) ? 0 : 1;
    let receivers = 0;
    for (const connection of this.connections) {
      if (!connection.channels.has(channel)) continue;
      connection.reply({ channel, text });
      receivers++;
    }
    if (receivers === 0) this.#running?.unheard.push(channel + text);
    return receivers;
  }

  receive(connection: Peer, message: Message): void {
    this.#inbox.push({ connection, message });
    this.#pump();
  }

  #pump(): void {
    if (this.#isBusy || !this.isUp || this.isHung || this.#inbox.length === 0) return;
    this.#isBusy = true;
    const { runId } = this.#identity;
    const delay = SERVICE_MS + (this.slowBy > 0 ? this.random.next() * this.slowBy : 0);
    this.world.after(delay, () => {
      this.#isBusy = false;
      if (this.isUp && !this.isHung && runId === this.#identity.runId) {
        const next = this.#inbox.shift();
        if (next) this.#answer(next.connection, next.message);
      }
      this.#pump();
    });
  }

  #answer(connection: Peer, message: Message): void {
    const { id } = message;
    if ('subscribe' in message) {
      connection.channels.add(message.subscribe);
      return connection.reply({ id, reply: 1 });
    }
    if ('info' in message) return connection.reply({ id, reply: this.#info() });
    if ('scan' in message)
      return connection.reply({ id, reply: ['0', this.holders().map(({ key }) => `lock:{${key}}`)] });
    const { command, text } = message;
    if (this.refusal === 'loading')
      return connection.reply({ id, reply: this.#error('LOADING Redis is loading the dataset in memory') });
    if (!text && !this.#known.has(command.name))
      return connection.reply({ id, reply: this.#error('NOSCRIPT No matching script. Please use EVAL.') });
    this.#known.add(command.name);
    connection.reply({ id, reply: this.#execute(command) });
    return undefined;
  }

  #error(message: string): Error {
    return Object.assign(new Error(message), { name: 'ReplyError' });
  }

  #execute(command: Command): unknown {
    this.commands++;
    const isWrite = WRITES.has(command.name);
    if (this.#isReadOnly && isWrite)
      return this.#error("READONLY You can't write against a read only replica.");
    if (this.refusal === 'misconf' && isWrite)
      return this.#error(
        'MISCONF Redis is configured to save RDB snapshots, but is unable to persist to disk',
      );
    if (this.refusal === 'oom' && (command.name === 'acquire' || command.name === 'holdBack'))
      return this.#error("OOM command not allowed when used memory > 'maxmemory'.");
    const { time } = this.world;
    if (isWrite) {
      this.#running = { time, wall: this.wall(), command, unheard: [] };
      this.#journal.push(this.#running);
      if (this.#journal.length >= this.#compactAt) this.#compact();
    }
    if (command.name === 'acquire') for (const { lease } of command.requests) this.onAcquire?.(lease);
    const healing = command.name === 'acquire' ? this.#healing(command) : [];
    const answer = this.#perform(command);
    this.#tellHealed(healing, answer as readonly Answer[]);
    if (command.name === 'forceRelease') this.onForce?.(answer as readonly string[]);
    return answer;
  }

  /**
   * The requests of an acquisition that store a held lock again. A late acquisition may have stored it just before, with the
   * token of the node: then nothing is stored again.
   */
  #healing({ requests }: Extract<Command, { name: 'acquire' }>): readonly [number, Lease][] {
    return [...requests.entries()].flatMap(([index, { lease, heals }]): [number, Lease][] => {
      const lacks = (): boolean => !this.#data.isHeldBy(lease);
      return heals === true && this.library.stage.read(this, lacks) ? [[index, lease]] : [];
    });
  }

  #tellHealed(healing: readonly [number, Lease][], answers: readonly Answer[]): void {
    for (const [index, lease] of healing) {
      const answer = answers[index];
      if (typeof answer !== 'object' || !('reply' in answer)) continue;
      if (answer.reply.granted) this.onHealed?.(lease, answer.reply.token);
    }
  }

  /** Drops old entries of the journal. The records of locks that are held need all theirs. */
  #compact(): void {
    const held = new Set(this.holders().map(({ id }) => id));
    for (const { command } of this.#journal.toReversed()) {
      if (command.name !== 'exchange' || !held.has(command.request.lease.id)) continue;
      for (const id of command.request.replaces) held.add(id);
    }
    const since = this.world.time - JOURNAL_MS;
    this.#journal = this.#journal.filter(
      ({ time, command }) => time > since || leasesOf(command).some(({ id }) => held.has(id)),
    );
    this.#compactAt = this.#journal.length + JOURNAL_GROWTH;
  }

  #perform(command: Command): unknown {
    let answer: unknown;
    this.library.stage.run(this, () => {
      answer = this.#data.execute(command);
    });
    return answer;
  }

  #info(): string {
    const uptime = Math.floor((this.world.time - this.startedAt) / 1_000);
    return [
      `run_id:${this.#identity.runId}`,
      'redis_mode:standalone',
      `role:${this.#isReadOnly ? 'slave' : 'master'}`,
      `uptime_in_seconds:${uptime}`,
      'maxmemory_policy:noeviction',
      'aof_enabled:1',
      `loading:${this.refusal === 'loading' ? 1 : 0}`,
    ].join('\r\n');
  }

  /** The holders of each key; for the judge. */
  holders(): {
    readonly key: string;
    readonly id: string;
    readonly owner: string;
    readonly remaining: number;
  }[] {
    const found: { key: string; id: string; owner: string; remaining: number }[] = [];
    this.library.stage.run(this, () => {
      for (const key of this.#data.keys) {
        const state = this.#data.read(key);
        if (!state || state instanceof Error) continue;
        for (const { id, owner, remaining } of state.holders) found.push({ key, id, owner, remaining });
      }
    });
    return found;
  }
}

/** The leases that a command stores or extends. */
function leasesOf(command: Command): readonly Lease[] {
  switch (command.name) {
    case 'acquire':
      return command.requests.map(({ lease }) => lease);
    case 'exchange':
      return [command.request.lease];
    case 'extend':
      return command.leases;
    case 'raise':
      return [command.lease];
    default:
      return [];
  }
}
