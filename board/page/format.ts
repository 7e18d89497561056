/** Writes milliseconds for people, in the same form as the command `npx nestjs-redlock`. */
export function duration(milliseconds: number): string {
  if (milliseconds < 1_000) return `${Math.max(0, Math.round(milliseconds / 100) * 100)} ms`;
  const seconds = milliseconds / 1_000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** A time of the day, by the clock of the browser. */
export function clock(at: number): string {
  return new Date(at).toLocaleTimeString(undefined, { hour12: false });
}

/**
 * Characters that are invisible, begin a new line, or change the direction of the text around them. With such
 * characters a key could look like another key.
 */
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029\u00a0\u3164\u115f\u1160]/gu;

export interface Piece {
  readonly text: string;
  /** `true` if the text is the name of a character that would be invisible. */
  readonly escaped: boolean;
}

/** Splits a text into pieces, and replaces each hidden character by its name. */
export function visible(text: string): readonly Piece[] {
  const pieces: Piece[] = [];
  let end = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > end) pieces.push({ text: text.slice(end, match.index), escaped: false });
    pieces.push({ text: nameOf(match[0]), escaped: true });
    end = match.index + match[0].length;
  }
  if (end < text.length) pieces.push({ text: text.slice(end), escaped: false });
  return pieces;
}

/** Replaces each hidden character as {@link visible} does, and returns one text, for places without markup. */
export function plain(text: string): string {
  return visible(text)
    .map((piece) => piece.text)
    .join('');
}

function nameOf(character: string): string {
  const named: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };
  return named[character] ?? `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`;
}

/** The command that shows a lock in a terminal. The key is one word of bash or zsh, whatever characters it has. */
export function commandFor(key: string): string {
  return `npx nestjs-redlock inspect ${quotedForShell(key)}`;
}

function quotedForShell(text: string): string {
  if (/^[\w.,:/@%+=-]+$/.test(text) && !text.startsWith('-')) return text;
  if (!/[\p{Cc}\p{Cf}]/u.test(text)) return `'${text.replaceAll("'", String.raw`'\''`)}'`;
  const escaped = text.replaceAll(/[\\'\p{Cc}\p{Cf}]/gu, (character) => {
    const code = character.codePointAt(0) ?? 0;
    if (character === '\\' || character === "'") return `\\${character}`;
    return code < 0x80
      ? `\\x${code.toString(16).padStart(2, '0')}`
      : `\\U${code.toString(16).padStart(8, '0')}`;
  });
  return `$'${escaped}'`;
}
