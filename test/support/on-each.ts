import { test } from '@jest/globals';

/**
 * Runs a suite on each of these servers. Without a server the file has one test to do, because Jest takes a file without
 * a test for an error.
 *
 * @param what - the servers, for the name of that test
 */
export function onEach<Server>(
  servers: readonly Server[],
  what: string,
  suite: (server: Server) => void,
): void {
  for (const server of servers) suite(server);
  if (servers.length === 0) test.todo(`on ${what}, which cannot be had here`);
}
