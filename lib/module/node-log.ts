import type { Logger } from '@nestjs/common';
import { elapsedSince, type Instant, now } from '../core/clock.js';
import { quorumOf } from '../redlock/quorum.js';

/** Logs one line when a node is disconnected, and one line when it is connected again. */
export class NodeLog {
  readonly #connected = new Set<string>();
  readonly #awaySince = new Map<string, Instant>();

  /** @param isClosing - `true` while the application shuts down and so disconnects its nodes */
  constructor(
    private readonly logger: Logger,
    private readonly nodeCount: number,
    private readonly isClosing: () => boolean,
  ) {}

  // The parameter `node` is the name of a node in the log, such as "Redis at 127.0.0.1:6379".

  /** Records a node that was not reached at start-up. The start has already logged it. */
  unreached(node: string): void {
    this.#awaySince.set(node, now());
  }

  /** Logs a lost connection. Does nothing when an attempt to connect again fails. */
  lost(node: string): void {
    if (!this.#connected.delete(node) || this.isClosing()) return;
    this.#awaySince.set(node, now());
    const { size } = this.#connected;
    const message = `Lost the connection to ${node}: ${this.#count()}`;
    if (size >= quorumOf(this.nodeCount)) this.logger.warn(message);
    else this.logger.error(`${message}. Nothing can be locked until more of them are connected again.`);
  }

  ready(node: string): void {
    this.#connected.add(node);
    const since = this.#awaySince.get(node);
    if (!since) return;
    this.#awaySince.delete(node);
    const away = Math.round(elapsedSince(since));
    this.logger.log(`${node} is connected again, after ${away} ms: ${this.#count()}`);
  }

  #count(): string {
    return `${this.#connected.size} of ${this.nodeCount} nodes are connected, ${quorumOf(this.nodeCount)} are needed`;
  }
}
