/** The command that names the connection over which it came. */
export const WHICH_CONNECTION: readonly string[] = ['CLIENT', 'INFO'];

/**
 * Reads the name of a connection from the answer to {@link WHICH_CONNECTION}: its id on the server and both addresses.
 * The id alone is not enough, because a server that restarts counts from the beginning.
 */
export function connectionIn(answer: unknown): string {
  return /^id=\S* addr=\S*(?: laddr=\S*)?/.exec(String(answer))?.[0] ?? '';
}
