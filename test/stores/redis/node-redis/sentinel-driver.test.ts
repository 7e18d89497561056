import { expect, test } from '@jest/globals';
import { nodeRedisSentinel, storeOver } from '../../../support/clients.js';
import { newFleet } from '../../../support/core.js';
import { startRedis } from '../../../support/redis-server.js';
import { startSentinel } from '../../../support/sentinel.js';
import { startTcpProxy } from '../../../support/tcp-proxy.js';
import { until } from '../../../support/until.js';

const WAITER = { keys: ['k'], mode: 'exclusive', process: '0'.repeat(16), number: 1, owner: 'me' } as const;
const CHANNEL = `lock:wake:${WAITER.process}`;

test('a `createSentinel` client whose connection was cut counts as subscribed only when the server answers on a new connection', async () => {
  const master = await startRedis();
  const proxy = await startTcpProxy(master);
  const port = await startSentinel(master, 'locks');
  let reconnections = 0;
  let masters = 0;
  const client = nodeRedisSentinel({
    name: 'locks',
    sentinelRootNodes: [{ host: master.host, port }],
    nodeClientOptions: { socket: { reconnectStrategy: () => (reconnections++, 20) } },
    // node-redis calls this function for its connection for commands, and then for its connection for messages.
    nodeAddressMap: (address) =>
      address !== `${master.host}:${master.port}` || masters++ % 2 === 0 ? undefined : proxy,
  });
  await until(() => client.isReady);
  const store = storeOver(client, newFleet());
  await store.connect();
  let isCut = false;
  let isEarly = false;
  const turns: string[] = [];
  const subscription = store.listen(WAITER, (_after, turn, released) => {
    isEarly ||= isCut && subscription.ready;
    if (turn) turns.push(String(released));
  });
  await until(() => subscription.ready);
  expect(proxy.connectionCount).toBe(1);

  // The cut comes while a check of the connection waits for its reply. So node-redis rejects that check.
  proxy.holdReplies();
  await until(() => !subscription.ready);
  isCut = true;
  proxy.refuse();
  proxy.cut();
  await until(() => reconnections > 2);
  expect(isEarly).toBe(false);
  expect(subscription.ready).toBe(false);
  isCut = false;
  await proxy.heal();
  await until(() => subscription.ready);
  const looker = master.client();
  await expect(looker.pubsub('NUMSUB', CHANNEL)).resolves.toEqual([CHANNEL, 1]);
  await looker.publish(CHANNEL, '0 somebody 1:me');
  await until(() => turns.length > 0);
  expect(turns).toEqual(['somebody']);
  subscription.stop();
  await store.close();
});
