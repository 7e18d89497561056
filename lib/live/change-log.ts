import { randomBytes } from 'node:crypto';

/** The number of changes kept for viewers whose stream was cut: half a minute at two changes a second. */
const MOST = 60;

/**
 * The latest changes as they are sent, by number. A viewer that missed a few gets those; one that missed more gets the
 * whole state again.
 */
export class ChangeLog {
  /** Identifies this log: the numbers of another process, or of an earlier start, mean nothing here. */
  readonly epoch = randomBytes(6).toString('hex');
  readonly #changes: string[] = [];
  #version = 0;

  /** Names the state after the last change. */
  get id(): string {
    return `${this.epoch}.${this.#version}`;
  }

  add(change: string): void {
    this.#version++;
    this.#changes.push(change);
    if (this.#changes.length > MOST) this.#changes.shift();
  }

  /** Returns the changes after the state with that `id`; `undefined` when they are not known. */
  after(id: string): readonly string[] | undefined {
    const [epoch, text = ''] = id.split('.');
    const missed = this.#version - Number(text);
    if (epoch !== this.epoch || !/^\d+$/.test(text) || missed < 0 || missed > this.#changes.length)
      return undefined;
    return missed === 0 ? [] : this.#changes.slice(-missed);
  }
}
