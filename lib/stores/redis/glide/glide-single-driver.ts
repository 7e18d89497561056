import { asError } from '../../../core/errors.js';
import { AdaptedServer } from '../connection/adapted-server.js';
import type { Server } from '../connection/driver.js';
import type { GlideClient } from './client-types.js';
import { connectionIn, WHICH_CONNECTION } from './connection-name.js';
import { sendBatch } from './glide-batch.js';
import { GlideDriver, isLoss } from './glide-driver.js';
import { GlideMessages } from './glide-messages.js';

/**
 * The driver for a `GlideClient`.
 *
 * GLIDE replaces a lost connection without a word, and the next answer may come from a server that restarted, or from
 * another server at the same address, whose vote must not count yet (S12). So each command travels with a question for
 * the connection. If the answer names another connection than before, the driver reports a loss and a new connection
 * before the caller gets the answer.
 */
export class GlideSingleDriver extends GlideDriver {
  readonly isCluster = false;
  readonly address: string;
  readonly #servers: readonly Server[];
  #connection: string | undefined;

  constructor(client: GlideClient) {
    super(client);
    const { host, port, db } = this.options;
    this.address = `${host}:${port}${db ? `/${db}` : ''}`;
    this.#servers = [
      new AdaptedServer(
        (args) => this.ask(args),
        this.options,
        () => new GlideMessages(client),
      ),
    ];
  }

  async connect(): Promise<void> {
    await this.#send([]);
  }

  nodes(): readonly Server[] {
    return this.#servers;
  }

  protected async ask(args: readonly string[]): Promise<unknown> {
    const [answer] = await this.#send([args]);
    if (answer instanceof Error) throw answer;
    return answer;
  }

  async #send(commands: readonly (readonly string[])[]): Promise<readonly unknown[]> {
    let answers: readonly unknown[];
    try {
      answers = await sendBatch(this.client, [WHICH_CONNECTION, ...commands]);
    } catch (error) {
      throw this.#failed(asError(error));
    }
    const [answer, ...rest] = answers;
    const connection = answer instanceof Error ? answer : connectionIn(answer);
    // If the connection is not known, an answer cannot count.
    if (connection instanceof Error) {
      this.lastError = connection;
      throw connection;
    }
    this.#heard(connection);
    return rest;
  }

  #heard(connection: string): void {
    const isOther = this.#connection !== undefined && this.#connection !== connection;
    this.#connection = connection;
    if (isOther) this.lost();
    this.found();
  }

  #failed(error: Error): Error {
    const told = this.failed(error);
    if (isLoss(error)) this.lost();
    return told;
  }
}
