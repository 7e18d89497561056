/**
 * Sends commands about the same thing one after the other, each when the one before was answered. A script that the server does
 * not know is sent once more with its text, and a command that was sent meanwhile would overtake it.
 */
export class OneAfterAnother {
  /** The last one about each thing, while it is under way. */
  readonly #last = new Map<string, Promise<unknown>>();

  async send<T>(about: string, command: () => Promise<T>): Promise<T> {
    const before = this.#last.get(about);
    const sent = before ? before.then(command, command) : command();
    this.#last.set(about, sent);
    try {
      return await sent;
    } finally {
      if (this.#last.get(about) === sent) this.#last.delete(about);
    }
  }
}
