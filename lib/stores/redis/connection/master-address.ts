import type { ServerAddress } from './driver.js';

/** The address of the master according to a Sentinel: an IP address, or a name if the Sentinels use names. */
export type MasterAddress = ServerAddress;

/** The address of the other side of a connection. */
interface Stream {
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
}

/** `true` if the connection leads to that address. */
export function leadsTo({ remoteAddress, remotePort }: Stream, { host, port }: MasterAddress): boolean {
  return remoteAddress === host && remotePort === port;
}
