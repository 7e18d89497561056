import { type Access, excludes, partOf } from './access.js';

/** Keeps the access with the largest token for each part of a key. */
export class LargestTokens<Each extends Access> {
  readonly #ofPart = new Map<string, Each>();

  add(access: Each): void {
    const part = partOf(access);
    const largest = this.#ofPart.get(part);
    if (!largest || access.token > largest.token) this.#ofPart.set(part, access);
  }

  /** Returns the access with the largest token of all kept accesses that exclude the given access. */
  against(access: Each): Each | undefined {
    let largest: Each | undefined;
    for (const each of this.#ofPart.values()) {
      if (excludes(each, access) && !(largest && largest.token >= each.token)) largest = each;
    }
    return largest;
  }
}
