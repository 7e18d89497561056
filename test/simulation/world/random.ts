/**
 * A stream of random numbers that depends only on a text. Each part of a world has a stream of its own, so that a fault
 * that is left out does not change the numbers of the other parts.
 */
export class Random {
  #a: number;
  #b: number;
  #c: number;
  #d = 1;

  constructor(text: string) {
    let hash = 2_166_136_261;
    for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 16_777_619);
    this.#a = hash ^ 0x9e3779b9;
    this.#b = Math.imul(hash, 0x85ebca6b) ^ 0x243f6a88;
    this.#c = ~hash;
    for (let round = 0; round < 12; round++) this.next();
  }

  /** A number from 0 to 1, without 1 (the algorithm `sfc32`). */
  next(): number {
    const sum = (((this.#a + this.#b) | 0) + this.#d) | 0;
    this.#d = (this.#d + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = (((this.#c << 21) | (this.#c >>> 11)) + sum) | 0;
    return (sum >>> 0) / 2 ** 32;
  }

  /** A whole number, both limits included. */
  whole(least: number, most: number): number {
    return least + Math.floor(this.next() * (most - least + 1));
  }

  between(least: number, most: number): number {
    return least + this.next() * (most - least);
  }

  /** A number between two limits, of which small ones are as likely as large ones: between 1 and 100, half are below 10. */
  scaled(least: number, most: number): number {
    return least * Math.exp(this.next() * Math.log(most / least));
  }

  chance(probability: number): boolean {
    return this.next() < probability;
  }

  pick<T>(list: readonly T[]): T {
    return list[Math.floor(this.next() * list.length)] as T;
  }

  fill(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; at++) bytes[at] = Math.floor(this.next() * 256);
  }
}
