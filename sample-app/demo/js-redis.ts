import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createRedisCommandExecutor, RedisServerState, Resp2Server } from 'js-redis-server/core';

// `createRedisServer` and the command line of the package listen on all interfaces; this server listens on the loopback
// interface.
const { server } = new Resp2Server({
  server: new RedisServerState({ databaseCount: 16 }),
  executor: createRedisCommandExecutor(),
});
// A server that starts again after a crash needs its old port.
server.listen(Number(process.argv[2] ?? 0), '127.0.0.1');
await once(server, 'listening');
console.log(`redis://127.0.0.1:${(server.address() as AddressInfo).port}`);
