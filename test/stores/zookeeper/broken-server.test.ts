import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from '@jest/globals';
import { exists } from '../../../lib/stores/zookeeper/client/requests.js';
import { ZooKeeperClient } from '../../../lib/stores/zookeeper/client/zookeeper-client.js';
import { cleanUpAfterTests } from '../../support/leftovers.js';
import { until } from '../../support/until.js';

/** The answer to a greeting: protocol, time-out of the session, its id, a password of 16 bytes. */
function welcome(timeout: number): Buffer {
  const answer = Buffer.alloc(4 + 36);
  answer.writeInt32BE(36);
  answer.writeInt32BE(timeout, 8);
  answer.writeBigInt64BE(timeout > 0 ? 7n : 0n, 12);
  answer.writeInt32BE(16, 20);
  return answer;
}

/** A server that answers each greeting, and ends each connection at the next message. */
async function startBroken(timeout: number): Promise<{ readonly address: string; count(): number }> {
  let connections = 0;
  const server = createServer((socket: Socket) => {
    connections++;
    socket.on('error', () => undefined);
    socket.once('data', () => {
      socket.write(welcome(timeout));
      socket.once('data', () => socket.destroy());
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  cleanUpAfterTests(async () => void server.close());
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, count: () => connections };
}

function clientOf(address: string, ready: (client: ZooKeeperClient) => void): ZooKeeperClient {
  const client: ZooKeeperClient = new ZooKeeperClient(
    { connectionString: address },
    { ready: () => ready(client), lost: () => undefined, watch: () => undefined },
  );
  cleanUpAfterTests(() => client.close(100));
  return client;
}

test('`open` rejects when a server ends each session at once', async () => {
  const { address } = await startBroken(0);
  const client = clientOf(address, () => undefined);
  await expect(client.open()).rejects.toThrow(/has ended the session/);
});

test('a request without a connection fails with the reason that each server gave', async () => {
  const [one, other] = [await startBroken(0), await startBroken(0)];
  const client = clientOf(`${one.address},127.0.0.1:1,${other.address}`, () => undefined);
  await expect(client.open()).rejects.toThrow(/ECONNREFUSED/);
  const error = (await client.ask(exists('/'), 1_000).catch(String)) as string;
  expect(error).toContain('no server is connected: ');
  expect(error).toContain('127.0.0.1:1 connect ECONNREFUSED');
  // Both servers have the same reason.
  expect(error.match(/has ended the session/g)).toHaveLength(1);
  expect(error).toContain(one.address);
  expect(error).toContain(other.address);
});

// Without the pauses there are thousands of connections in a second.
test('a server that ends each connection at its first request is asked again after a pause', async () => {
  const { address, count } = await startBroken(30_000);
  const client = clientOf(address, (asking) => void asking.ask(exists('/'), 1_000).catch(() => undefined));
  const began = performance.now();
  await client.open();
  await delay(1_000);
  await until(() => count() > 1);
  // The least pause is 50 ms.
  expect(count()).toBeLessThan(4 + (performance.now() - began) / 40);
});

test('`open` makes no second connection while another one awaits the password', async () => {
  const { address } = await startBroken(30_000);
  let asked = 0;
  // The server ends the first connection at the login. The next password never comes.
  const password = (): Promise<string> =>
    asked++ === 0 ? Promise.resolve('secret') : new Promise(() => undefined);
  const client = new ZooKeeperClient(
    { connectionString: address, auth: { username: 'me', password } },
    { ready: () => undefined, lost: () => undefined, watch: () => undefined },
  );
  await expect(client.open()).rejects.toThrow(/ended the connection/);
  await until(() => asked === 2);
  const opening = client.open();
  expect(asked).toBe(2);
  await client.close(100);
  await expect(opening).rejects.toThrow('the client was closed');
});

test('a client that is closed while the password is awaited, or before `open`, rejects', async () => {
  const { address } = await startBroken(30_000);
  const client = new ZooKeeperClient(
    {
      connectionString: address,
      auth: { username: 'me', password: () => new Promise<string>(() => undefined) },
    },
    { ready: () => undefined, lost: () => undefined, watch: () => undefined },
  );
  const opening = client.open();
  await client.close(100);
  await expect(opening).rejects.toThrow('the client was closed');
  await expect(client.open()).rejects.toThrow('the client was closed');
});
