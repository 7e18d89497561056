/**
 * Removes the part between the scheme of a URL and its host, which may have a password. Names of nodes have none; messages
 * of servers might.
 */
export function redacted(text: string): string {
  return text.replaceAll(/\/\/[^/\s@]*@/g, '//');
}
