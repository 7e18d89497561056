/**
 * Removes the part between the scheme of a URL and its host, which may contain a password. The names of nodes contain
 * no password, but the messages of servers may.
 */
export function redacted(text: string): string {
  return text.replaceAll(/\/\/[^/\s@]*@/g, '//');
}
