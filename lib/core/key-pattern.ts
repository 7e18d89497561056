import type { DeclaredLock } from './declared-lock.js';

/** Marks the position of an argument in a key; no key contains it. */
const HOLE = '\u{10FFFF}';

/** The number of stand-ins that a key function gets: more than any function takes, and enough for a rest parameter. */
const ARGUMENTS = 8;

/** The most operations on the stand-ins in one call. No key needs so many, and the limit ends an endless loop. */
const MOST_ASKED = 1_000;

/** The pattern of the keys of a lock. */
export interface KeyPattern {
  /** The key with `*` for each argument, for people. */
  readonly text: string;
  /** The number of characters that all matching keys share. */
  readonly length: number;
  readonly fits: (key: string) => boolean;
}

/**
 * The key patterns of a declared lock, which tell its keys from others in a list of locks. Calls the key function with
 * stand-ins, once with all of them and then with fewer, so that a branch on a missing argument shows both patterns. Any
 * other branch shows one. Every property of a stand-in is another stand-in.
 *
 * @returns an empty list if the function does more than insert its arguments into texts, or if a key is nothing but
 * arguments
 */
export function keyPatterns(lock: DeclaredLock): readonly KeyPattern[] {
  if (lock.keys) return lock.keys.map(patternOf);
  const [texts = [], ...ofFewer] = Array.from({ length: ARGUMENTS + 1 }, (_, less) =>
    textsOf(lock, ARGUMENTS - less),
  );
  if (texts.length === 0 || !texts.every((text) => text.includes(HOLE))) return [];
  const all = [...new Set([...texts, ...ofFewer.flat()])];
  const patterns = all.map(patternOf);
  // `order:*` covers `order:all`, and it covers the key that a missing argument gives.
  const isCovered = (at: number): boolean =>
    patterns.some((pattern, other) => {
      const isAsWide = patterns[at]!.fits(all[other]!);
      return other !== at && pattern.fits(all[at]!) && (!isAsWide || other < at);
    });
  return patterns.filter((_, at) => !isCovered(at));
}

/** Empty if the function throws, or if an argument alone is a key. */
function textsOf(lock: DeclaredLock, count: number): readonly string[] {
  let asked = 0;
  const ask = (): void => {
    if (++asked > MOST_ASKED) throw new Error('the key function does not come to an end');
  };
  try {
    const { keys } = lock.for(...(Array.from({ length: count }, () => standIn(ask)) as never[]));
    return keys.includes(HOLE) ? [] : keys;
  } catch {
    return [];
  }
}

/** Acts as a text inside a text, and as a function and an object elsewhere. Fails as a number. */
function standIn(ask: () => void): unknown {
  const next = (): unknown => {
    ask();
    return standIn(ask);
  };
  return new Proxy(() => undefined, {
    apply: next,
    get: (_, name) => {
      if (name === Symbol.toPrimitive) return asText;
      return name === 'toString' ? (): string => HOLE : next();
    },
  });
}

function asText(hint: 'string' | 'number' | 'default'): string {
  if (hint === 'number') throw new TypeError('a key that is computed from a number cannot be predicted');
  return HOLE;
}

function patternOf(text: string): KeyPattern {
  const parts = text.split(HOLE);
  const length = parts.join('').length;
  return { text: parts.join('*'), length, fits: (key) => fits(parts, key) };
}

/** `true` if the key contains the parts in order, the first at its start and the last at its end. */
function fits(parts: readonly string[], key: string): boolean {
  const [first = '', ...others] = parts;
  const last = others.pop();
  if (last === undefined) return key === first;
  if (!key.startsWith(first)) return false;
  let from = first.length;
  for (const part of others) {
    const found = key.indexOf(part, from);
    if (found < 0) return false;
    from = found + part.length;
  }
  return key.length - last.length >= from && key.endsWith(last);
}
