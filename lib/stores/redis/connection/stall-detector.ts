import type { Driver } from './driver.js';

/** A server without an answer for this many milliseconds gets no further commands until it answers. */
const SILENT_AFTER_MS = 1_000;

/**
 * A connection without an answer for this many milliseconds is treated as dead. TCP itself would retry for a quarter of
 * an hour when packets are lost.
 */
const HUNG_AFTER_MS = 5_000;

/**
 * The number of unanswered commands after which a Cluster gets no more: one of its masters may hang while the others
 * answer.
 */
const CLUSTER_MAY_OWE = 1_000;

/**
 * Notices when a client gets no answers: a server hangs, or a connection loses its packets.
 *
 * Further commands would only fill the memory of this process, and their callers would wait for nothing. Earlier
 * commands are still on their way, so their answer shows that the server is back.
 *
 * A connection of our own is replaced after a while, even if it hangs in its handshake (S15). The `socketTimeout` of
 * ioredis does not do that: its timer outlives the connection for which it was set, so it ends the next one, and it
 * keeps the process alive (seen with 5.11).
 */
export class StallDetector {
  #unanswered = 0;
  #inHandshake = false;
  /** The start of the present silence, by the monotonic clock. */
  #since: number | undefined;
  /** Stays set when the answer arrives: a timer for each command would cost more than the rest of this class. */
  #timer: NodeJS.Timeout | undefined;
  #silent = false;

  /** @param opened - `true` if the library made the client, and so ends its connections */
  constructor(
    private readonly client: Driver,
    private readonly opened: boolean,
  ) {
    if (!opened) return;
    const handshake = (under: boolean) => (): void => {
      this.#inHandshake = under;
      this.#noteAnswer();
    };
    client.on('connect', handshake(true));
    client.on('ready', handshake(false));
    client.on('close', handshake(false));
  }

  /** `true` if the server has been silent for so long that it gets no further commands. */
  get isSilent(): boolean {
    return this.#silent && this.#unanswered > (this.client.isCluster ? CLUSTER_MAY_OWE : 0);
  }

  /** Records a sent command that must be answered. */
  asked(): void {
    this.#unanswered++;
    this.#since ??= performance.now();
    if (!this.#timer) this.#lookAfter(SILENT_AFTER_MS);
  }

  /** Records an answer. */
  answered(): void {
    this.#unanswered--;
    this.#noteAnswer();
  }

  /**
   * Records a failed command, which does not show that the server answers. When no unanswered command is left, more may
   * be sent.
   */
  failed(): void {
    this.#unanswered--;
  }

  /** Resets the state: there is another connection. */
  end(): void {
    this.#noteAnswer();
  }

  #noteAnswer(): void {
    this.#silent = false;
    const waiting = this.#unanswered > 0 || this.#inHandshake;
    this.#since = waiting ? performance.now() : undefined;
    if (waiting && !this.#timer) this.#lookAfter(SILENT_AFTER_MS);
  }

  #lookAfter(delay: number): void {
    // If the thread was blocked, the answer may have arrived unread. `setImmediate` lets it come first.
    this.#timer = setTimeout(setImmediate, delay, () => this.#look()).unref();
  }

  #look(): void {
    this.#timer = undefined;
    if (this.#since === undefined) return;
    const silence = performance.now() - this.#since;
    this.#silent = silence >= SILENT_AFTER_MS;
    if (silence >= HUNG_AFTER_MS && this.opened) {
      this.client.stream?.destroy();
    } else if (silence < HUNG_AFTER_MS || this.#unanswered > 0) {
      const next = [SILENT_AFTER_MS, HUNG_AFTER_MS].find((bound) => bound > silence) ?? Infinity;
      this.#lookAfter(Math.min(SILENT_AFTER_MS, next - silence));
    }
  }
}
