/**
 * Sends the commands about one subject one after the other, each after the answer to the one before. A script that the
 * server does not know is sent again with its text, and a later command would overtake it.
 */
export class OneAfterAnother {
  /** The last command about each subject, until it is answered. */
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
