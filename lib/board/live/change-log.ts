import { randomBytes } from 'node:crypto';

/** Number of changes that are kept for viewers whose stream was interrupted: half a minute at two changes a second. */
const MOST = 60;

/** Largest number of characters of all kept changes together. A change of 20,000 locks has about 5 million. */
const MOST_CHARACTERS = 8_000_000;

/**
 * The latest changes of the shown locks, by number, in the form in which they were sent. A viewer that missed a few
 * changes gets them later; a viewer that missed more gets the whole state again.
 */
export class ChangeLog {
  /** Identifies this log: numbers from another process, or from an earlier start, are not valid here. */
  readonly epoch = randomBytes(6).toString('hex');
  readonly #changes: string[] = [];
  #characters = 0;
  #version = 0;

  /** Id of the state after the last change. */
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

  /**
   * Returns the changes after the state with that `id`, each with its own id; `undefined` when the log does not have
   * all of them.
   */
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
