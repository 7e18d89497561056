import type { Driver } from './driver.js';

/** Who has not answered for so many milliseconds is asked nothing more until an answer comes. */
const SILENT_AFTER_MS = 1_000;

/**
 * A connection that has not answered for so many milliseconds is taken for dead. TCP itself would keep trying for a
 * quarter of an hour when packets vanish.
 */
const HUNG_AFTER_MS = 5_000;

/** So much may be unanswered by a Cluster before it is asked nothing more: one of its masters may be silent, and others not. */
const CLUSTER_MAY_OWE = 1_000;

/**
 * Notices when a client gets no answers: a server that hangs, a connection on which packets vanish.
 *
 * What would be asked of it then only piles up in the memory of this process, and whoever waits for its vote waits in
 * vain. What was asked before is still on its way, so its answer tells when the server is back.
 *
 * A connection of ours is replaced after a while, also when it hangs in its handshake (S15). The `socketTimeout` of
 * ioredis does not do that: its timer outlives the connection that it was set for, so it ends the next one, and it
 * keeps the process alive (seen with 5.11).
 */
export class StallDetector {
  #unanswered = 0;
  #inHandshake = false;
  /** Since when something is asked and nothing has come back, on the monotonic clock. */
  #since: number | undefined;
  /** Runs on when the answer is there: a timer for each command would cost more than all the rest of this. */
  #timer: NodeJS.Timeout | undefined;
  #silent = false;

  /** @param opened - whether the client is ours, so that its connections are ours to end */
  constructor(
    private readonly client: Driver,
    private readonly opened: boolean,
  ) {
    if (!opened) return;
    const handshake = (under: boolean) => (): void => {
      this.#inHandshake = under;
      this.#heard();
    };
    client.on('connect', handshake(true));
    client.on('ready', handshake(false));
    client.on('close', handshake(false));
  }

  /** Whether there has been no answer for so long that asking more is of no use. */
  get isSilent(): boolean {
    return this.#silent && this.#unanswered > (this.client.isCluster ? CLUSTER_MAY_OWE : 0);
  }

  /** Something was sent that must be answered. */
  asked(): void {
    this.#unanswered++;
    this.#since ??= performance.now();
    if (!this.#timer) this.#lookAfter(SILENT_AFTER_MS);
  }

  /** It was answered. */
  answered(): void {
    this.#unanswered--;
    this.#heard();
  }

  /** It came to nothing, which is no sign of life. When nothing is left that could be answered, more may be asked. */
  failed(): void {
    this.#unanswered--;
  }

  /** What was silent is gone: there is another connection. */
  end(): void {
    this.#heard();
  }

  #heard(): void {
    this.#silent = false;
    const waiting = this.#unanswered > 0 || this.#inHandshake;
    this.#since = waiting ? performance.now() : undefined;
    if (waiting && !this.#timer) this.#lookAfter(SILENT_AFTER_MS);
  }

  #lookAfter(delay: number): void {
    // When the thread was blocked, the answer may be there and unread: it comes first.
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
