import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { expect, test } from '@jest/globals';
import { cleanUpAfterTests } from './leftovers.js';
import { resetSocket } from './reset-socket.js';

/** Connects to a server of this process; returns the socket of each side. */
async function connection(): Promise<readonly [Socket, Socket]> {
  const server = createServer({ allowHalfOpen: true });
  cleanUpAfterTests(async () => void server.close());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const [[peer], socket] = await Promise.all([
    once(server, 'connection') as Promise<[Socket]>,
    new Promise<Socket>((resolve) => {
      const client = connect((server.address() as AddressInfo).port, '127.0.0.1', () => resolve(client));
    }),
  ]);
  return [socket, peer];
}

test('an idle connection is reset', async () => {
  const [socket, peer] = await connection();
  const closed = once(socket, 'close');
  resetSocket(socket);
  await closed;
  await expect(once(peer.resume(), 'end')).rejects.toMatchObject({ code: 'ECONNRESET' });
});

test('a connection that is just sending its end closes, too', async () => {
  const [socket, peer] = await connection();
  const errors: unknown[] = [];
  socket.on('error', (error) => errors.push(error));
  const closed = once(socket, 'close');
  socket.end('x');
  resetSocket(socket);
  await closed;
  expect(errors).toEqual([]);
  peer.destroy();
});
