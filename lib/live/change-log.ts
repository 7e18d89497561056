import { randomBytes } from 'node:crypto';

/** The number of changes kept for viewers whose stream was cut: half a minute at two changes a second. */
const MOST = 60;

/** The most characters that all kept changes have together: 20,000 changed locks are about 5 million. */
const MOST_CHARACTERS = 8_000_000;

/**
 * The latest changes as they are sent, by number. A viewer that missed a few gets those; one that missed more gets the
 * whole state again.
 */
export class ChangeLog {
  /** Identifies this log: the numbers of another process, or of an earlier start, mean nothing here. */
  readonly epoch = randomBytes(6).toString('hex');
  readonly #changes: string[] = [];
  #characters = 0;
  #version = 0;

  /** Names the state after the last change. */
  get id(): string {
    return `${this.epoch}.${this.#version}`;
  }

  add(change: string): void {
    this.#version++;
    this.#changes.push(change);
    this.#characters += change.length;
    while (this.#changes.length > MOST || this.#characters > MOST_CHARACTERS)
      this.#characters -= this.#changes.shift()!.length;
  }

  /** Returns the changes after the state with that `id`, each with its own id; `undefined` when they are not known. */
  after(id: string): readonly (readonly [change: string, id: string])[] | undefined {
    const [epoch, text = ''] = id.split('.');
    const missed = this.#version - Number(text);
    if (epoch !== this.epoch || !/^\d+$/.test(text) || missed < 0 || missed > this.#changes.length)
      return undefined;
    return this.#changes
      .slice(this.#changes.length - missed)
      .map((change, index) => [change, `${epoch}.${Number(text) + index + 1}`] as const);
  }
}
