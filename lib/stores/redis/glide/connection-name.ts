/** The command that names the connection over which it came. */
export const WHICH_CONNECTION: readonly string[] = ['CLIENT', 'INFO'];

/**
 * Reads the name of a connection from the answer to {@link WHICH_CONNECTION}: its id on the server and both addresses.
 * The id alone is not enough, because a server that restarts counts from the beginning.
 */
export function connectionIn(answer: unknown): string | Error {
  const [name] = /^id=\S+ addr=\S*(?: laddr=\S*)?/.exec(String(answer)) ?? [];
  return name ?? new Error('CLIENT INFO does not name the connection');
}
