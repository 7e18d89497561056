/** Largest number of names in a message. */
const MOST_SHOWN = 10;

/** Two names resemble each other if at least this fraction of their letters, counted from both ends, is equal. */
const NEAR = 0.5;

/**
 * Suggestions for a message about an unknown name: the known names that resemble it, or else the first ten known names.
 */
export function nearNames(name: string, known: readonly string[]): readonly string[] {
  const near = likelyNames(name, known);
  return near.length > 0 ? near : known.slice(0, MOST_SHOWN);
}

/** Up to three known names that resemble an unknown name, the most likely first. */
export function likelyNames(name: string, known: readonly string[]): readonly string[] {
  const scored = known.map((each) => ({ each, score: likeness(name, each) }));
  const near = scored.filter(({ score }) => score >= NEAR).toSorted((a, b) => b.score - a.score);
  return near.slice(0, 3).map(({ each }) => each);
}

/**
 * The fraction of equal letters, counted from both ends: a usual typing error changes neither the beginning nor the end
 * of a name.
 */
function likeness(a: string, b: string): number {
  const least = Math.min(a.length, b.length);
  let before = 0;
  while (before < least && a[before] === b[before]) before++;
  let after = 0;
  while (after < least - before && a.at(-1 - after) === b.at(-1 - after)) after++;
  return (before + after) / Math.max(a.length, b.length);
}
