import { Redlock } from '../../../lib/redlock/redlock.js';
import { RestartGuard } from '../../../lib/redlock/restart-guard.js';
import { Beats } from '../../../lib/redlock/thread/liveness.js';
import type { FromThread, ToThread } from '../../../lib/redlock/thread/messages.js';
import { Renewals } from '../../../lib/redlock/thread/renewals.js';
import { ThreadHost } from '../../../lib/redlock/thread/thread-host.js';
import { ScriptedNode } from '../../support/scripted-node.js';

/** Milliseconds for which a message between the threads is on its way. */
export const MESSAGE_MS = 1;

/** A connection of the thread to the server of another scripted node. */
class SecondConnection extends ScriptedNode {
  override readonly memory: ScriptedNode['memory'];

  constructor(of: ScriptedNode) {
    super(of.name);
    this.memory = of.memory;
  }
}

/**
 * Both sides of the renewal by a thread, in one thread: so a test can use fake timers. Messages are copied as between
 * threads, and take {@link MESSAGE_MS}.
 */
export class TwoThreads {
  /** The nodes as the thread sees them, with connections of its own. */
  readonly nodes: ScriptedNode[];
  readonly redlock: Redlock;
  readonly host: ThreadHost;
  /** All messages in the order in which they were sent, except those that only wake the thread. */
  readonly sent: (ToThread | FromThread)[] = [];
  /** `true` while the event loop of the holder does not run: it sends no signs of life, and receives no messages. */
  isBlocked = false;
  /** `true` while the event loop of the thread does not run. */
  isHanging = false;
  /** Number of locks that the thread could not renew, and their holder could. */
  outdone = 0;
  /** Number of reports that the thread does not answer. */
  hangs = 0;
  readonly #renewals: Renewals;
  readonly #undelivered: FromThread[] = [];
  readonly #late: (() => void)[] = [];
  readonly #unread: ToThread[] = [];
  #isDead = false;
  #whenReady: () => void = () => undefined;

  constructor(nodes: readonly ScriptedNode[]) {
    this.nodes = nodes.map((node) => new SecondConnection(node));
    const settings = {
      owner: 'me',
      driftFactor: 0.01,
      nodeTimeout: undefined,
      guard: new RestartGuard(0),
    };
    const seen = new Beats();
    const beats = new Beats(seen.memory);
    beats.add = () => {
      if (!this.isBlocked) seen.add();
    };
    const later = <Message extends ToThread | FromThread>(
      message: Message,
      receive: (copy: Message) => void,
    ): void => {
      if (message.kind !== 'look') this.sent.push(message);
      const copy = structuredClone(message);
      setTimeout(() => {
        if (!this.#isDead) receive(copy);
      }, MESSAGE_MS);
    };
    this.host = new ThreadHost(
      { post: (message) => later(message, (copy) => this.#toThread(copy)) },
      beats,
      () => 0,
      { ready: () => this.#whenReady(), warning: () => undefined, hangs: () => this.hangs++ },
    );
    this.#renewals = new Renewals(this.nodes, settings, seen, (message) =>
      later(message, (copy) => {
        if (this.isHanging) return;
        if (this.isBlocked) this.#undelivered.push(copy);
        else this.host.receive(copy);
      }),
    );
    this.redlock = new Redlock(nodes, {
      ...settings,
      guard: new RestartGuard(0),
      thread: {
        foresee: () => undefined,
        begin: () => undefined,
        open: () => Promise.resolve(),
        close: () => Promise.resolve(),
        whenReady: (task) => (this.#whenReady = task),
        takeOver: (lock, handedOver) => this.host.takeOver(lock, handedOver),
        outdone: () => this.outdone++,
      },
    });
  }

  /** The thread has connected. */
  ready(): void {
    this.host.receive({ kind: 'ready' });
  }

  /** Runs what a timer of the holder does, which a blocked event loop delays. */
  asTimer(task: () => void): void {
    if (this.isBlocked) this.#late.push(task);
    else task();
  }

  /** Lets the holder run again: its timers, and then its messages. */
  unblock(): void {
    this.isBlocked = false;
    for (const task of this.#late.splice(0)) task();
    for (const message of this.#undelivered.splice(0)) this.host.receive(message);
  }

  /** Blocks the thread: it receives nothing, and its requests get no answers. */
  hang(): void {
    this.isHanging = true;
    for (const node of this.nodes) node.fate = { extend: 'hang' };
  }

  /** Lets the thread run again, which then receives its messages, each in an event of its own. */
  goOn(): void {
    this.isHanging = false;
    for (const node of this.nodes) node.fate = {};
    for (const [index, message] of this.#unread.splice(0).entries())
      setTimeout(() => this.#toThread(message), index * MESSAGE_MS);
  }

  /** Ends the thread, as a crash does. */
  die(): void {
    this.#isDead = true;
    this.#renewals.close();
    for (const node of this.nodes) node.fate = { extend: 'hang' };
    this.host.died();
  }

  end(): void {
    this.#renewals.close();
  }

  #toThread(message: ToThread): void {
    if (this.isHanging) this.#unread.push(message);
    else if (message.kind !== 'connect' && message.kind !== 'close') this.#renewals.receive(message);
  }
}
