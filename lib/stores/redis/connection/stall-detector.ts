import type { Driver } from './driver.js';

/** Milliseconds without an answer after which a server gets no further commands until it answers. */
const SILENT_AFTER_MS = 1_000;

/**
 * Milliseconds without an answer after which a connection counts as dead. When packets are lost, TCP itself would retry
 * for a quarter of an hour.
 */
const HUNG_AFTER_MS = 5_000;

/**
 * Largest number of unanswered commands to a silent Cluster. The number is not 0, because one master may hang while the
 * others answer.
 */
const MOST_UNANSWERED_OF_CLUSTER = 1_000;

/**
 * Notices when a client gets no answers: a server hangs, or a connection loses its packets.
 *
 * A silent server gets no further commands: they would only fill the memory of this process, and their callers would
 * wait without success. Earlier commands still wait for an answer, so an answer shows when the server works again.
 *
 * A connection that the library made is replaced after {@link HUNG_AFTER_MS}, also when it hangs in its handshake
 * (S15). For a passed-in client, which may never fail its commands, `onHang` is called then. The `socketTimeout` of ioredis cannot do that (seen with 5.11): its timer continues after the connection has
 * ended, then ends the next connection, and keeps the process alive.
 */
export class StallDetector {
  #unanswered = 0;
  #inHandshake = false;
  /** The start of the present silence, by the monotonic clock. */
  #since: number | undefined;
  /**
   * The timer. It continues after an answer, because a new timer for each command would cost more than the rest of this
   * class.
   */
  #timer: NodeJS.Timeout | undefined;
  #silent = false;
  #hangs = false;
  #isClosed = false;
  /** The time of the last answer or new connection, by the monotonic clock. */
  #heardAt = performance.now();

  /** @param opened - `true` if the library made the client, and so ends its connections */
  constructor(
    private readonly client: Driver,
    private readonly opened: boolean,
    private readonly onHang: () => void = () => undefined,
  ) {
    if (!opened) return;
    const handshake = (under: boolean) => (): void => {
      this.#inHandshake = under;
      this.#restart();
    };
    client.on('connect', handshake(true));
    client.on('ready', handshake(false));
    client.on('close', handshake(false));
  }

  /** `true` if the server has been silent for so long that it gets no further commands. */
  get isSilent(): boolean {
    return this.#silent && this.#unanswered > (this.client.isCluster ? MOST_UNANSWERED_OF_CLUSTER : 0);
  }

  /** `true` if the connection of a passed-in client counts as dead, and has commands without an answer. */
  get hangs(): boolean {
    return this.#hangs && this.#unanswered > 0;
  }

  /** Milliseconds since the last answer or new connection. */
  get quietFor(): number {
    return performance.now() - this.#heardAt;
  }

  /** Milliseconds for which commands have had no answer; 0 if no command waits for one. */
  get silentFor(): number {
    return this.#since === undefined ? 0 : performance.now() - this.#since;
  }

  /** `true` if a command has no answer yet. */
  get isAwaited(): boolean {
    return this.#unanswered > 0;
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
   * Records a failed command. The failure does not show that the server answers. When each command has an answer or has
   * failed, the server gets further commands.
   */
  failed(): void {
    this.#unanswered--;
  }

  /** Ends the checks, and leaves no timer. */
  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  /** Resets the state for another connection. */
  end(): void {
    this.#noteAnswer();
  }

  #noteAnswer(): void {
    this.#heardAt = performance.now();
    this.#restart();
  }

  /** Begins to measure another silence. */
  #restart(): void {
    this.#silent = this.#hangs = false;
    const waiting = this.#unanswered > 0 || this.#inHandshake;
    this.#since = waiting ? performance.now() : undefined;
    if (waiting && !this.#timer) this.#lookAfter(SILENT_AFTER_MS);
  }

  #lookAfter(delay: number): void {
    if (this.#isClosed) return;
    // If the event loop was blocked, the answer may have arrived, but Node has not read it yet. `setImmediate` lets
    // Node read the answer before the time limit takes effect.
    this.#timer = setTimeout(setImmediate, delay, () => this.#look()).unref();
  }

  #look(): void {
    this.#timer = undefined;
    if (this.#since === undefined) return;
    const silence = performance.now() - this.#since;
    this.#silent = silence >= SILENT_AFTER_MS;
    const isDead = silence >= HUNG_AFTER_MS;
    if (isDead && this.opened) {
      this.client.stream?.destroy();
    } else if (!isDead || this.#unanswered > 0) {
      if (isDead && !this.#hangs) {
        this.#hangs = true;
        this.onHang();
      }
      const next = [SILENT_AFTER_MS, HUNG_AFTER_MS].find((bound) => bound > silence) ?? Infinity;
      this.#lookAfter(Math.min(SILENT_AFTER_MS, next - silence));
    }
  }
}
