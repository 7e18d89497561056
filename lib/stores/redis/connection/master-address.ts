/** The address of the master according to a Sentinel. A host name can stand for several IP addresses. */
export interface MasterAddress {
  readonly ips: readonly string[];
  readonly port: number;
}

/** The address of the other side of a connection. */
interface Stream {
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
}

/** `true` if the connection leads to that address. */
export function leadsTo({ remoteAddress, remotePort }: Stream, { ips, port }: MasterAddress): boolean {
  return remotePort === port && remoteAddress !== undefined && ips.includes(remoteAddress);
}
