import type { Log } from '../core/log.js';
import { elapsedSince, type Instant, now } from '../core/clock.js';
import { quorumOf } from '../redlock/quorum.js';

/**
 * Milliseconds for which a node may be away without a warning. Servers and networks end idle connections, and the next
 * connection is there in a quarter of a second (seen: 1 to 228 ms).
 */
const GRACE_MS = 1_000;

/** A node that is not connected. */
interface Absence {
  readonly since: Instant;
  /** `true` after the absence was logged. */
  isLogged: boolean;
}

/**
 * Logs one line when a node has been disconnected for a while, and one line when it is connected again. A short absence
 * is only a line at level debug.
 */
export class NodeLog {
  readonly #connected = new Set<string>();
  readonly #absences = new Map<string, Absence>();

  /** @param isClosing - `true` while the application shuts down and so disconnects its nodes */
  constructor(
    private readonly log: Log,
    private readonly nodeCount: number,
    private readonly isClosing: () => boolean,
  ) {}

  // The parameter `node` is the name of a node in the log, such as "Redis at 127.0.0.1:6379".

  /** Records a node that was not reached at start-up. The start has already logged it. */
  unreached(node: string): void {
    this.#absences.set(node, { since: now(), isLogged: true });
  }

  /** Records a lost connection. Does nothing when an attempt to connect again fails. */
  lost(node: string): void {
    if (!this.#connected.delete(node) || this.isClosing()) return;
    const absence = { since: now(), isLogged: false };
    this.#absences.set(node, absence);
    setTimeout(() => {
      if (this.#absences.get(node) === absence && !this.isClosing()) this.#logAbsence(node, absence);
    }, GRACE_MS).unref();
  }

  ready(node: string): void {
    this.#connected.add(node);
    const absence = this.#absences.get(node);
    if (!absence) return;
    this.#absences.delete(node);
    const away = Math.round(elapsedSince(absence.since));
    const message = `${node} is connected again, after ${away} ms: ${this.#count()}`;
    if (absence.isLogged) this.log.log(message);
    else this.log.debug(message);
  }

  #logAbsence(node: string, absence: Absence): void {
    absence.isLogged = true;
    const message = `Lost the connection to ${node}: ${this.#count()}`;
    if (this.#connected.size >= quorumOf(this.nodeCount)) this.log.warn(message);
    else this.log.error(`${message}. Nothing can be locked until more of them are connected again.`);
  }

  #count(): string {
    return `${this.#connected.size} of ${this.nodeCount} nodes are connected, ${quorumOf(this.nodeCount)} are needed`;
  }
}
