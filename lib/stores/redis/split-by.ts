import type { Tell } from '../../core/ports.js';

/**
 * Calls `ask` twice: with the items for which `fits` is true, and with the other items. Reports each answer with the
 * item's index in the whole list.
 */
export function splitBy<T, Reply>(
  items: readonly T[],
  fits: (item: T) => boolean,
  tell: Tell<Reply>,
  ask: (some: readonly T[], tell: Tell<Reply>) => void,
): void {
  for (const fit of [true, false]) {
    const indexes = items.flatMap((item, index) => (fits(item) === fit ? [index] : []));
    const some = indexes.map((index) => items[index] as T);
    ask(some, (at, reply) => tell(indexes[at] as number, reply));
  }
}
