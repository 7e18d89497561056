import { connect, createServer, type Socket } from 'node:net';
import { freePort, LOOPBACK } from '../../support/free-port.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { resetSocket } from '../../support/reset-socket.js';

/** A network that forgets idle connections, such as a NAT, IPVS or a load balancer. */
export interface ForgetfulNetwork {
  readonly host: string;
  readonly port: number;
  /** `true` while the network forgets. */
  forgets: boolean;
  /** The number of connections that were forgotten and then used. */
  readonly used: number;
}

/**
 * Starts a network in front of a server.
 *
 * @param after - milliseconds without data after which the network forgets a connection
 * @param answer - the answer to the next packet of a forgotten connection
 */
export async function startForgetfulNetwork(
  server: { readonly port: number },
  after: number,
  answer: 'a reset' | 'nothing',
): Promise<ForgetfulNetwork> {
  const sockets = new Set<Socket>();
  const network = { host: LOOPBACK, port: await freePort(), forgets: false, used: 0 };
  const listener = createServer((client) => {
    const target = connect(server.port, LOOPBACK);
    let [last, isForgotten] = [performance.now(), false];
    for (const [from, to] of [
      [client, target],
      [target, client],
    ] as const) {
      sockets.add(from);
      from.on('error', () => undefined);
      from.on('data', (data) => {
        const now = performance.now();
        if (network.forgets && !isForgotten && now - last > after) {
          isForgotten = true;
          network.used++;
        }
        last = now;
        if (!isForgotten) to.write(data);
        else if (answer === 'a reset') resetSocket(client);
      });
      from.on('close', () => {
        sockets.delete(from);
        to.destroy();
      });
    }
  });
  await new Promise<void>((listening) => listener.listen(network.port, LOOPBACK, listening));
  cleanUpAfterTests(async () => {
    listener.close();
    for (const socket of sockets) socket.destroy();
  });
  return network;
}
