/** Most characters of a key in a message. */
const MOST_OF_KEY = 120;

/** Most keys in a message. */
const MOST_KEYS = 8;

/** A name that needs no escape, so that most names take only one test. */
const PLAIN = /^(?:[!-[\]-~]+(?: [!-[\]-~]+)*)?$/;

/**
 * Characters that no font shows, or that change the text around them. They are controls, formats such as bidirectional
 * marks and zero-width characters, halves of surrogate pairs, unassigned, private and ignorable characters, and
 * separators other than the space.
 */
const INVISIBLE = /(?! )[\p{C}\p{Z}\p{DI}\u2800]/gu;

/** In a name also the backslash, spaces that are easily overlooked, and a mark that combines with the text in front. */
const EASILY_MISTAKEN = /[\p{C}\p{Z}\p{DI}\u2800\\]|^\p{M}/gu;

/** In a name that is not in Unicode's normal form C, which looks like another name, all characters beyond ASCII. */
const EASILY_MISTAKEN_UNNORMALIZED = /[\p{C} \\]|\P{ASCII}/gu;

/**
 * Makes all characters of a name visible, such as a key or an owner: it can contain any character, and two names that
 * differ must not look the same. All messages, logs and outputs for people use this function.
 */
export function printable(name: string): string {
  if (PLAIN.test(name)) return name;
  return printablePieces(name)
    .map(({ text }) => text)
    .join('');
}

/** A part of a name as it is shown. */
export interface PrintablePiece {
  readonly text: string;
  /** `true` if the text stands for a character that is not shown as it is. */
  readonly escaped: boolean;
}

/** Splits a name as {@link printable} shows it. The page of the board marks the escaped pieces. */
export function printablePieces(name: string): readonly PrintablePiece[] {
  const pattern = name.normalize('NFC') === name ? EASILY_MISTAKEN : EASILY_MISTAKEN_UNNORMALIZED;
  const pieces: PrintablePiece[] = [];
  let end = 0;
  for (const { 0: character, index } of name.matchAll(pattern)) {
    if (character === ' ' && isBetweenWords(name, index)) continue;
    if (index > end) pieces.push({ text: name.slice(end, index), escaped: false });
    // Double the backslash, so that no name looks like the escape of another one.
    pieces.push({ text: character === '\\' ? '\\\\' : escapeOf(character), escaped: true });
    end = index + character.length;
  }
  if (end < name.length) pieces.push({ text: name.slice(end), escaped: false });
  return pieces;
}

/** Makes all characters of a sentence visible, such as the message of an error. Its names may already be printable. */
export function printableText(text: string): string {
  return text.replaceAll(INVISIBLE, escapeOf);
}

/**
 * Makes all characters of a JSON document visible that JSON would leave as they are. The document stays valid, and has
 * the same content: each of these characters is inside a string.
 */
export function printableJson(json: string): string {
  return json.replaceAll(INVISIBLE, (character) =>
    Array.from({ length: character.length }, (_, at) => unitOf(character, at)).join(''),
  );
}

/** Formats keys for messages: shortens long keys, and counts the rest of a long list. */
export function quoted(keys: readonly string[]): string {
  const shown = keys.slice(0, MOST_KEYS).map((key) => `"${shortened(key).replaceAll('"', '\\"')}"`);
  if (keys.length > MOST_KEYS) shown.push(`and ${keys.length - MOST_KEYS} more`);
  return shown.join(', ');
}

/** Cuts out the middle of a long text, because keys differ at the beginning or at the end. */
export function shortened(text: string, most = MOST_OF_KEY): string {
  if (text.length <= most) return printable(text);
  const half = Math.floor(most / 2);
  return `${printable(whole(text.slice(0, half)))}\u2026${printable(whole(text.slice(-half)))}`;
}

/** Removes a half of a surrogate pair from each end of a cut text. */
function whole(cut: string): string {
  return cut.replaceAll(/^[\uDC00-\uDFFF]|[\uD800-\uDBFF]$/g, '');
}

function isBetweenWords(text: string, at: number): boolean {
  const after = text[at + 1];
  return at > 0 && after !== undefined && after !== ' ';
}

function escapeOf(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  return code > 0xffff ? `\\u{${code.toString(16)}}` : unitOf(character, 0);
}

function unitOf(character: string, at: number): string {
  return `\\u${character.charCodeAt(at).toString(16).padStart(4, '0')}`;
}
