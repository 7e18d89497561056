/** Keys and owners can be any text; what would begin a new line or steer a terminal is written as an escape. */
export function printable(text: string): string {
  return text.replaceAll(
    /[\p{Cc}\u2028\u2029]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** Keys as messages show them. */
export function quoted(keys: readonly string[]): string {
  return keys.map((key) => `"${printable(key)}"`).join(', ');
}
