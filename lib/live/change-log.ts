import { randomBytes } from 'node:crypto';

/** So many changes are kept for those whose stream was cut; at two a second, half a minute. */
const MOST = 60;

/** The changes of the last while, as they are sent, by number: who has missed a few gets those, and who has missed more gets all anew. */
export class ChangeLog {
  /** What the numbers belong to: those of another process, or of an earlier start, mean nothing here. */
  readonly epoch = randomBytes(6).toString('hex');
  readonly #changes: string[] = [];
  #version = 0;

  /** What names the state after the last change. */
  get id(): string {
    return `${this.epoch}.${this.#version}`;
  }

  add(change: string): void {
    this.#version++;
    this.#changes.push(change);
    if (this.#changes.length > MOST) this.#changes.shift();
  }

  /** What has changed after the state with that `id`; `undefined` when that is not known. */
  after(id: string): readonly string[] | undefined {
    const [epoch, text = ''] = id.split('.');
    const missed = this.#version - Number(text);
    if (epoch !== this.epoch || !/^\d+$/.test(text) || missed < 0 || missed > this.#changes.length)
      return undefined;
    return missed === 0 ? [] : this.#changes.slice(-missed);
  }
}
