/**
 * Milliseconds without an answer after which a connection is asked for a sign of life. Networks forget an idle
 * connection after half a minute (mobile networks) to a quarter of an hour (IPVS).
 */
const PING_AFTER_MS = 5_000;

/**
 * Sends a request on an idle connection again and again. A network that forgets idle connections then keeps it, and a
 * connection that is dead nevertheless is noticed before somebody needs it.
 */
export class IdlePing {
  #timer: NodeJS.Timeout | undefined;

  constructor(
    /** Milliseconds since the last answer. */
    private readonly quietFor: () => number,
    private readonly ping: () => void,
  ) {}

  begin(): void {
    this.end();
    this.#lookAfter(PING_AFTER_MS);
  }

  end(): void {
    clearTimeout(this.#timer);
  }

  #lookAfter(delay: number): void {
    this.#timer = setTimeout(() => this.#look(), delay).unref();
  }

  #look(): void {
    const left = PING_AFTER_MS - this.quietFor();
    if (left <= 0) this.ping();
    this.#lookAfter(left > 0 ? Math.ceil(left) : PING_AFTER_MS);
  }
}
