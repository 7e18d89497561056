/** The command that names the connection over which it came. */
export const WHICH_CONNECTION: readonly string[] = ['CLIENT', 'INFO'];

const UNNAMED =
  'its answer to CLIENT INFO does not name the connection, so a replaced connection would go unnoticed; give a client of ' +
  'ioredis for this server';

/**
 * Reads the name of a connection from the answer to {@link WHICH_CONNECTION}: its id on the server and both addresses.
 * The id alone is not enough, because a server that restarts counts from the beginning.
 */
export function connectionIn(answer: unknown): string | Error {
  const [name] = /^id=\S+ addr=\S*(?: laddr=\S*)?/.exec(String(answer)) ?? [];
  return name ?? new Error(UNNAMED);
}
