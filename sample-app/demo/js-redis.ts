import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createRedisCommandExecutor, RedisServerState, Resp2Server } from 'js-redis-server/core';

// `createRedisServer` and the command line of the package listen on every interface; this listens on loopback.
const { server } = new Resp2Server({
  server: new RedisServerState({ databaseCount: 16 }),
  executor: createRedisCommandExecutor(),
});
// A given port is for one that is started again after it was killed.
server.listen(Number(process.argv[2] ?? 0), '127.0.0.1');
await once(server, 'listening');
console.log(`redis://127.0.0.1:${(server.address() as AddressInfo).port}`);
