/** A pause that doubles with each of the split votes before it, up to a largest value. */
export function growingPause(first: number, splits: number, largest: number): number {
  return Math.min(first * 2 ** splits, largest);
}
