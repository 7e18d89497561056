import { connect } from 'node:net';

/**
 * Resolves to true if a Redis answers and is ready. A Redis that requires a password is ready; a Redis that still loads
 * its data is not.
 */
export function ping(host: string, port: number, timeout = 500): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const finish = (answered: boolean) => {
      socket.destroy();
      resolve(answered);
    };
    socket.setTimeout(timeout, () => finish(false));
    socket.once('error', () => finish(false));
    socket.once('close', () => finish(false));
    socket.once('data', (reply) => finish(/^(\+PONG|-NOAUTH)/.test(reply.toString('latin1'))));
    socket.write('PING\r\n');
  });
}
