import type { ServerAddress } from './driver.js';

/** Where a Sentinel says that the master is: by IP address, or by name where the Sentinels go by names. */
export type MasterAddress = ServerAddress;

/** One side of a connection. */
interface Stream {
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
}

/** Whether a connection leads there. */
export function leadsTo({ remoteAddress, remotePort }: Stream, { host, port }: MasterAddress): boolean {
  return remoteAddress === host && remotePort === port;
}
