/** How many names a message shows. */
const MOST_SHOWN = 10;

/** The share of its letters that a name must have in common with another, at its beginning and end, to be near. */
const NEAR = 0.5;

/** For messages about a name that is not known: those that it may be a misspelling of, or else all, if they are few. */
export function nearNames(name: string, known: readonly string[]): readonly string[] {
  const scored = known.map((each) => ({ each, score: likeness(name, each) }));
  const near = scored.filter(({ score }) => score >= NEAR).toSorted((a, b) => b.score - a.score);
  return (near.length > 0 ? near.map(({ each }) => each) : known).slice(0, near.length > 0 ? 3 : MOST_SHOWN);
}

/** One letter too many, too few or wrong, or two that changed places, leave the beginning and the end as they were. */
function likeness(a: string, b: string): number {
  const least = Math.min(a.length, b.length);
  let before = 0;
  while (before < least && a[before] === b[before]) before++;
  let after = 0;
  while (after < least - before && a.at(-1 - after) === b.at(-1 - after)) after++;
  return (before + after) / Math.max(a.length, b.length);
}
