import type { DeclaredLock } from './declared-lock.js';

/** Marks an argument in a pattern. It is a noncharacter of Unicode, so no key contains it. */
const HOLE = '\u{10FFFF}';

/**
 * Number of stand-in arguments for a key function: more than a usual key function has parameters, and enough for a rest
 * parameter.
 */
const ARGUMENTS = 8;

/**
 * Largest number of operations on the stand-in arguments in one call of a key function. The limit ends an endless loop;
 * a usual key function needs far fewer operations.
 */
const MOST_ASKED = 1_000;

/** The pattern of the keys of a lock. */
export interface KeyPattern {
  /** The key with `*` for each argument, for people. */
  readonly text: string;
  /** The number of characters that all matching keys have in common. */
  readonly length: number;
  readonly fits: (key: string) => boolean;
}

/**
 * Finds the patterns of the keys of a declared lock, so that a list of locks can show which keys belong to this lock.
 *
 * Calls the key function with stand-ins as arguments: first with all stand-ins, then with fewer. A function that tests
 * for a missing argument therefore yields the patterns of both branches. With any other test, only one of the branches
 * yields a pattern. Every property of a stand-in is another stand-in.
 *
 * @returns the patterns; none if the function does more with its arguments than insert them into texts, or if a key
 * consists of an argument alone
 */
export function keyPatterns(lock: DeclaredLock): readonly KeyPattern[] {
  if (lock.keys) return lock.keys.map(patternOf);
  const [texts = [], ...ofFewer] = Array.from({ length: ARGUMENTS + 1 }, (_, less) =>
    textsOf(lock, ARGUMENTS - less),
  );
  if (texts.length === 0 || !texts.every((text) => text.includes(HOLE))) return [];
  const all = [...new Set([...texts, ...ofFewer.flat()])];
  const patterns = all.map(patternOf);
  // Leave out each pattern that another pattern covers: `order:*` covers `order:all`, and also `order:undefined`, the
  // key of a call without an argument.
  const isCovered = (at: number): boolean =>
    patterns.some((pattern, other) => {
      const isAsWide = patterns[at]!.fits(all[other]!);
      return other !== at && pattern.fits(all[at]!) && (!isAsWide || other < at);
    });
  return patterns.filter((_, at) => !isCovered(at));
}

/** The keys for `count` arguments. Empty if the key function throws, or if a key consists of an argument alone. */
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

/**
 * Makes an argument that acts as a text inside a text, and as a function and an object elsewhere. A conversion to a
 * number throws.
 */
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
  if (hint === 'number')
    throw new TypeError('a key function that uses an argument as a number has no pattern');
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
