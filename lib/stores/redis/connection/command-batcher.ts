import { asError } from '../../../redlock/fan-out.js';
import { type CommandChannel, isNoScript } from './command-channel.js';
import { nextTick } from './corked-writes.js';
import { chunkByKeys } from '../chunk-by-keys.js';
import { ACQUIRE, RELEASE, type Script } from '../scripts.js';

/** What a script is to do for one claim. */
interface Request {
  readonly keys: readonly string[];
  /** As many for each claim. */
  readonly args: readonly string[];
  /** Whether somebody still wants to have it done: else it must not be sent (S15). */
  readonly wanted: () => boolean;
  readonly resolve: (answered: Answered) => void;
  readonly reject: (error: Error) => void;
}

/** The answer for one claim, and all that the command was answered with. */
export interface Answered {
  readonly answer: unknown;
  readonly all: readonly unknown[];
}

/**
 * Collects what a node is asked within one turn of the event loop for many claims, and sends it as few commands when the
 * turn ends: of many locks at a time, most of the cost is in making, sending and reading a command for each. Nobody waits
 * for the end of the turn, because nothing would be written before ({@link CorkedWrites}; not so on a Cluster, where each
 * claim has a command of its own anyway).
 */
export class CommandBatcher {
  readonly #releases: Request[] = [];
  readonly #acquisitions: Request[] = [];
  #scheduled = false;

  /** @param base - what the names of channels begin with */
  constructor(
    private readonly channel: CommandChannel,
    private readonly base: string,
  ) {}

  acquire(keys: readonly string[], args: readonly string[], wanted: () => boolean): Promise<Answered> {
    return this.#add(this.#acquisitions, keys, args, wanted);
  }

  /** @param atOnce - alone and now: the caller may go on at once, and close the client (S6) */
  release(keys: readonly string[], args: readonly string[], atOnce: boolean): Promise<Answered> {
    if (!atOnce) return this.#add(this.#releases, keys, args, always);
    return new Promise((resolve, reject) => {
      void this.#send(RELEASE, [{ keys, args, wanted: always, resolve, reject }]);
    });
  }

  /**
   * Sends what was asked so far. Releases come first: whose turn comes with one of them may be among those who ask.
   */
  flush(): void {
    this.#scheduled = false;
    this.#sendEach(RELEASE, this.#releases.splice(0));
    this.#sendEach(ACQUIRE, this.#acquisitions.splice(0));
  }

  #add(
    requests: Request[],
    keys: readonly string[],
    args: readonly string[],
    wanted: () => boolean,
  ): Promise<Answered> {
    if (!this.#scheduled) {
      this.#scheduled = true;
      nextTick(() => this.flush());
    }
    return new Promise((resolve, reject) => requests.push({ keys, args, wanted, resolve, reject }));
  }

  #sendEach(script: Script, requests: readonly Request[]): void {
    for (const part of chunkByKeys(requests, this.channel.client.isCluster)) void this.#send(script, part);
  }

  /** Settles each of the requests, whatever happens; never rejects. */
  async #send(script: Script, asked: readonly Request[]): Promise<void> {
    const requests = asked.filter((request) => {
      const wanted = request.wanted();
      if (!wanted) request.reject(new Error('given up before it could be asked'));
      return wanted;
    });
    if (requests.length === 0) return;
    const allWanted = (): boolean => requests.every(({ wanted }) => wanted());
    try {
      const keys: string[] = [];
      const args = [this.base];
      for (const request of requests) {
        keys.push(...request.keys);
        args.push(...request.args);
      }
      const all = (await this.channel.run(script, keys, args, allWanted)) as readonly unknown[];
      requests.forEach(({ resolve, reject }, index) => {
        const answer = all[index];
        if (answer instanceof Error) reject(this.channel.explained(answer));
        else resolve({ answer, all });
      });
    } catch (thrown) {
      const error = asError(thrown) as Error & { command?: unknown };
      // ioredis adds the command, with what all of them asked.
      delete error.command;
      if (isNoScript(error) && !allWanted()) {
        // The server did not know the script, and some are not wanted any more: the others ask again.
        void this.#send(script, requests);
      } else if (requests.length > 1 && isAboutKeys(error)) {
        for (const request of requests) void this.#send(script, [request]);
      } else {
        for (const { reject } of requests) reject(error);
      }
    }
  }
}

/** A command was refused for some of its keys, before anything was done: outside a user's rights, or in different slots. */
function isAboutKeys({ message, cause }: Error): boolean {
  return /^(NOPERM|CROSSSLOT)/.test(cause instanceof Error ? cause.message : message);
}

function always(): boolean {
  return true;
}
