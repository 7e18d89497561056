/** Escapes characters that would begin a new line or control a terminal: keys and owners can contain any text. */
export function printable(text: string): string {
  return text.replaceAll(
    /[\p{Cc}\u2028\u2029]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** Formats keys for messages. */
export function quoted(keys: readonly string[]): string {
  return keys.map((key) => `"${printable(key)}"`).join(', ');
}
