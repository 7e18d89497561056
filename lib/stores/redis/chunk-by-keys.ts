/** The most keys that one command is for. A key takes the server up to 10 microseconds, and others wait meanwhile. */
const MOST_KEYS = 100;

/**
 * Parts of what is asked of a server that one command each can carry. On a Cluster everything has a command of its own,
 * as the keys of one command must be in one slot.
 */
export function chunkByKeys<T extends { readonly keys: readonly string[] }>(
  items: readonly T[],
  isCluster: boolean,
): T[][] {
  const parts: T[][] = [];
  let keys = Infinity;
  for (const item of items) {
    keys += item.keys.length;
    if (keys > MOST_KEYS || isCluster) {
      keys = item.keys.length;
      parts.push([]);
    }
    parts.at(-1)?.push(item);
  }
  return parts;
}
