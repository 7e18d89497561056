import type { Socket } from 'node:net';

/** Where a Sentinel says that the master is. */
export interface MasterAddress {
  /** An IP address, or a name where the Sentinels go by names. */
  readonly host: string;
  readonly port: number;
}

/** Whether a connection leads there. */
export function leadsTo({ remoteAddress, remotePort }: Socket, { host, port }: MasterAddress): boolean {
  return remoteAddress === host && remotePort === port;
}
