import 'reflect-metadata';
import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import { type ClientProxy, ClientProxyFactory, type RedisOptions, Transport } from '@nestjs/microservices';
import { FastifyAdapter, type NestFastifyApplication } from '@nestjs/platform-fastify';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { lastValueFrom } from 'rxjs';
import { WebSocket } from 'ws';
import { LOCK_SKIPPED_CHANNEL, LockService, type LockSkippedEvent } from '../../lib/index.js';
import { freePort } from '../support/free-port.js';
import { startApp } from '../support/nest-app.js';
import { Overlap } from '../support/overlap.js';
import { startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { connect, Orders, OrdersModule } from './transports.js';

interface Instance {
  readonly app: NestFastifyApplication;
  readonly url: string;
  readonly tcp: ClientProxy;
  readonly socket: WebSocket;
}

// This block closes its applications in `afterAll`. The clean-up of the test file stops the server later.
describe('handlers of two applications on Fastify, WebSockets, TCP and Redis', () => {
  const overlap = new Overlap();
  /** The orders that were settled. */
  const settled: number[] = [];
  const instances: Instance[] = [];
  const received: { readonly event: string; readonly data: unknown }[] = [];
  let redis: ClientProxy;

  beforeAll(async () => {
    jest.spyOn(Orders.prototype, 'settle').mockImplementation(async (id) => {
      await overlap.work();
      settled.push(id);
      return `order ${id} is settled`;
    });
    const { host, port, url } = await startRedis();
    const options: RedisOptions['options'] = { host, port };
    while (instances.length < 2) instances.push(await start(url, options));
    redis = ClientProxyFactory.create({ transport: Transport.REDIS, options });
    await redis.connect();
  });
  afterEach(() => {
    received.length = 0;
  });
  afterAll(async () => {
    await redis.close();
    for (const { app, tcp, socket } of instances) {
      socket.terminate();
      await tcp.close();
      await app.close();
    }
  });

  async function start(nodes: string, options: RedisOptions['options']): Promise<Instance> {
    const tcpPort = await freePort();
    const app = (await startApp(
      { imports: [OrdersModule] },
      { nodes },
      {
        adapter: new FastifyAdapter(),
        prepare: (nest) => connect(nest as NestFastifyApplication, tcpPort, options),
      },
    )) as NestFastifyApplication;
    await app.listen(0, '127.0.0.1');
    const { port } = app.getHttpServer().address() as AddressInfo;
    const tcp = ClientProxyFactory.create({ transport: Transport.TCP, options: { port: tcpPort } });
    await tcp.connect();
    const socket = new WebSocket(`ws://127.0.0.1:${port}`);
    socket.on('message', (text: Buffer) => received.push(JSON.parse(text.toString()) as never));
    await once(socket, 'open');
    return { app, url: `http://127.0.0.1:${port}`, tcp, socket };
  }

  const post = ({ url }: Instance, id: number): Promise<Response> =>
    fetch(`${url}/orders/${id}/settle`, { method: 'POST' });
  const send = (client: ClientProxy, id: number): Promise<unknown> =>
    lastValueFrom(client.send('settle', id));
  const tell = ({ socket }: Instance, id: number): void =>
    socket.send(JSON.stringify({ event: 'settle', data: id }));

  /** Asks again while the answer is LOCK_UNAVAILABLE, because a busy Redis may answer too late for a call. */
  async function answerOf<Answer>(ask: () => Promise<Answer>): Promise<Answer> {
    let answer = await ask();
    while (JSON.stringify(answer).includes('LOCK_UNAVAILABLE')) answer = await ask();
    return answer;
  }

  test('handlers for the same order run one after the other', async () => {
    const answers = await Promise.all([
      ...instances.map(async (instance) => (await post(instance, 7)).text()),
      ...instances.map(({ tcp }) => send(tcp, 7)),
      ...instances.map(async (instance) => tell(instance, 7)),
      send(redis, 7),
    ]);
    await until(() => received.length === 2);
    expect(answers.filter((answer) => answer === 'order 7 is settled')).toHaveLength(5);
    expect(received.map(({ data }) => data)).toEqual(Array(2).fill('order 7 is settled'));
    // Redis sends its message to both instances, so seven requests make eight runs.
    await until(() => overlap.runs === 8);
    expect(overlap.most).toBe(1);
  });

  test('each handler answers with an error of its transport while the order is locked', async () => {
    const [instance] = instances as [Instance];
    const lock = await instance.app.get(LockService).acquire('order:8');
    const [http, tcp, overRedis, socket] = await Promise.all([
      answerOf(async () => {
        const response = await post(instance, 8);
        const retryAfter = Number(response.headers.get('retry-after'));
        return { status: response.status, retryAfter, body: await response.json() };
      }),
      answerOf(() => send(instance.tcp, 8).catch((error: unknown) => error)),
      answerOf(() => send(redis, 8).catch((error: unknown) => error)),
      answerOf(async () => {
        received.length = 0;
        tell(instance, 8);
        await until(() => received.length === 1);
        return received[0];
      }),
    ]);
    const problem = { code: 'LOCK_HELD', message: expect.stringContaining('Somebody else is working') };
    expect(http).toMatchObject({ status: 409, body: problem });
    expect(http.retryAfter).toBeGreaterThan(0);
    expect([tcp, overRedis]).toMatchObject([problem, problem]);
    expect(socket).toMatchObject({ event: 'exception', data: problem });
    expect(settled).not.toContain(8);
    await lock.release();
  });

  test('only one instance processes an event over Redis, although all instances receive the event', async () => {
    const skipped: string[] = [];
    const listen = (message: unknown): void => void skipped.push((message as LockSkippedEvent).keys.join());
    subscribe(LOCK_SKIPPED_CHANNEL, listen);
    await lastValueFrom(redis.emit('paid', 9), { defaultValue: undefined });
    await until(() => skipped.length === 1 && settled.includes(9));
    // Both instances receive the second event after the run of the first one has ended.
    await lastValueFrom(redis.emit('paid', 9), { defaultValue: undefined });
    await until(() => skipped.length === 3);
    unsubscribe(LOCK_SKIPPED_CHANNEL, listen);
    expect(new Set(skipped)).toEqual(new Set(['paid:9']));
    expect(settled.filter((id) => id === 9)).toEqual([9]);
  });
});
