import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { Gateway } from '../../../lib/stores/etcd/gateway.js';
import { until } from '../../support/until.js';

// A proxy in front of etcd may close each connection after its answer.

let server: Server;
let requests = 0;
const open = new Set<Socket>();

beforeEach(async () => {
  requests = 0;
  server = createServer((request, response) => {
    requests++;
    request.resume();
    response.setHeader('connection', 'close').end('{"header":{"revision":"1"}}');
  });
  server.on('connection', (socket) => {
    open.add(socket);
    socket.on('close', () => open.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});
afterEach(() => void server.close());

test('a connection that ends with its answer does not count as an idle connection that was lost', async () => {
  const { port } = server.address() as AddressInfo;
  let drops = 0;
  const gateway = new Gateway(
    { endpoints: `http://127.0.0.1:${port}` },
    { ready: () => undefined, lost: () => undefined, idle: () => drops++ },
  );
  for (let call = 1; call <= 3; call++) {
    await gateway.call('kv/range', {}, 5_000);
    await until(() => open.size === 0);
  }
  gateway.close();
  expect({ requests, drops }).toEqual({ requests: 3, drops: 0 });
});
