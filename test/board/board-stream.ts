import type { BoardMessage, Change, Snapshot } from '../../lib/board/live/messages.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { until } from '../support/until.js';

/** Receives the events of a board, as its page does. */
export class BoardStream {
  readonly messages: BoardMessage[] = [];
  /** Id of the last message. */
  id = '';
  /** Resolves when the stream has ended. */
  readonly ended: Promise<void>;
  readonly #abort = new AbortController();

  private constructor(response: Response) {
    this.ended = this.#read(response).catch(() => undefined);
    cleanUpAfterTests(async () => {
      this.close();
      await this.ended;
    });
  }

  /** @param after - id of the last message that the viewer received, if its stream was cut */
  static async open(url: string, after?: string): Promise<BoardStream> {
    const headers = { ...(after !== undefined && { 'last-event-id': after }) };
    const abort = new AbortController();
    const response = await fetch(`${url}/events`, { headers, signal: abort.signal });
    if (!response.ok) throw new Error(`the board answered ${response.status}`);
    const stream = new BoardStream(response);
    stream.#abort.signal.addEventListener('abort', () => abort.abort());
    return stream;
  }

  get snapshot(): Snapshot {
    const found = this.messages.find((message) => message.type === 'snapshot');
    if (!found) throw new Error('there was no snapshot');
    return found;
  }

  get changes(): readonly Change[] {
    return this.messages.filter((message) => message.type === 'change');
  }

  async hears(what: (message: BoardMessage) => boolean): Promise<BoardMessage> {
    await until(() => this.messages.some(what));
    return this.messages.find(what)!;
  }

  close(): void {
    this.#abort.abort();
  }

  async #read({ body }: Response): Promise<void> {
    let text = '';
    for await (const chunk of body!.pipeThrough(new TextDecoderStream())) {
      text += chunk;
      for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
        this.#hear(text.slice(0, end));
        text = text.slice(end + 2);
      }
    }
  }

  #hear(event: string): void {
    const [, data] = /^data: (.*)$/m.exec(event) ?? [];
    if (data === undefined) return;
    this.id = /^id: (.*)$/m.exec(event)?.[1] ?? this.id;
    this.messages.push(JSON.parse(data) as BoardMessage);
  }
}

/** Returns a function that tells whether a message has a lock with this key. */
export function hasKey(key: string): (message: BoardMessage) => boolean {
  return ({ rows = [] }) => rows.some((row) => row.key === key);
}
