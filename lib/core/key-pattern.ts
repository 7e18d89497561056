import type { DeclaredLock } from './declared-lock.js';

/** What stands where an argument goes; no key has it. */
const HOLE = '\u{10FFFF}';

/** So many arguments a key function is given: more than any takes, and enough for a rest. */
const ARGUMENTS = 8;

/** So much is asked of the stand-ins in a call: more than any key takes, and a walk that ends with what is not there ends too. */
const MOST_ASKED = 1_000;

/** The form of the keys of a lock. */
export interface KeyPattern {
  /** For people: the key, with `*` for what arguments give. */
  readonly text: string;
  /** How many characters all these keys have in common. */
  readonly length: number;
  readonly fits: (key: string) => boolean;
}

/**
 * The forms of the keys of a declared lock, to tell its keys from others where locks are listed. It calls the key function with
 * stand-ins, of which every property is another one, with as many as it may take and with fewer: a branch on an argument that is
 * there or not shows both forms. Other branches show one.
 *
 * @returns none where the function does more than to put its arguments into texts, or where there is nothing else in them
 */
export function keyPatterns(lock: DeclaredLock): readonly KeyPattern[] {
  if (lock.keys) return lock.keys.map(patternOf);
  const [texts = [], ...ofFewer] = Array.from({ length: ARGUMENTS + 1 }, (_, less) =>
    textsOf(lock, ARGUMENTS - less),
  );
  if (texts.length === 0 || !texts.every((text) => text.includes(HOLE))) return [];
  const all = [...new Set([...texts, ...ofFewer.flat()])];
  const patterns = all.map(patternOf);
  // With `order:*`, `order:all` says nothing; nor does what a text makes of an argument that is missing.
  const isCovered = (at: number): boolean =>
    patterns.some((pattern, other) => {
      const isAsWide = patterns[at]!.fits(all[other]!);
      return other !== at && pattern.fits(all[at]!) && (!isAsWide || other < at);
    });
  return patterns.filter((_, at) => !isCovered(at));
}

/** None where it throws, or where an argument itself is a key. */
function textsOf(lock: DeclaredLock, count: number): readonly string[] {
  let asked = 0;
  const ask = (): void => {
    if (++asked > MOST_ASKED) throw new Error('it asks without end');
  };
  try {
    const { keys } = lock.for(...(Array.from({ length: count }, () => standIn(ask)) as never[]));
    return keys.includes(HOLE) ? [] : keys;
  } catch {
    return [];
  }
}

/** A text in a text, and a function and an object otherwise; no number. */
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
  if (hint === 'number') throw new TypeError('what comes of a number is not known');
  return HOLE;
}

function patternOf(text: string): KeyPattern {
  const parts = text.split(HOLE);
  const length = parts.join('').length;
  return { text: parts.join('*'), length, fits: (key) => fits(parts, key) };
}

/** Whether the key has the parts one after another, the first and the last at its ends. */
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
