/**
 * Sends the commands about one subject one after the other: each command waits for the answer to the command before it.
 * If the server does not know the script of a command, the command is sent a second time. Without this order, a later
 * command could overtake the repeated command.
 */
export class OneAfterAnother {
  /** The last unanswered command about each subject. */
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
