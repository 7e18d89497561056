import { createConnection } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { Redis } from 'ioredis';
import { startRedis, type RedisServer } from './redis-server.js';
import { startTcpProxy, type TcpProxy } from './tcp-proxy.js';
import { until } from './until.js';

let redis: RedisServer;
let direct: Redis;
let proxy: TcpProxy;
let client: Redis;

beforeAll(async () => {
  redis = await startRedis();
  direct = redis.client();
});

afterAll(() => redis.stop());

beforeEach(async () => {
  await direct.flushall();
  proxy = await startTcpProxy(redis);
  client = connectTo(proxy);
  await client.ping();
});

afterEach(async () => {
  client.disconnect();
  await proxy.close();
});

/** Opens a client that neither repeats a command nor reconnects, so that the test sees the effect of the proxy. */
function connectTo({ host, port }: { readonly host: string; readonly port: number }): Redis {
  const connection = new Redis({
    host,
    port,
    disconnectTimeout: 100,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
  });
  connection.on('error', () => undefined);
  return connection;
}

async function elapsed(work: Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work;
  return performance.now() - start;
}

async function settledWithin(work: Promise<unknown>, ms: number): Promise<boolean> {
  const settled = work.then(
    () => true,
    () => true,
  );
  return Promise.race([settled, sleep(ms, false)]);
}

/**
 * Shortest time of a command with a delay of three seconds, in milliseconds. Timers of Node are exact to a millisecond.
 */
const DELAYED = 2_998;

describe('a TCP proxy', () => {
  test('a TCP proxy forwards all data unchanged, also large values in both directions', async () => {
    const value = 'x'.repeat(3_000_000);
    await client.set('key', value);
    await expect(client.get('key')).resolves.toBe(value);
  });

  test('after `delayReplies()`, the server executes a request long before the reply arrives', async () => {
    proxy.delayReplies(3_000);
    const start = performance.now();
    let known = false;
    const reply = client.set('key', 'value').then(() => (known = true));
    await until(async () => (await direct.get('key')) === 'value');
    // If the machine was paused for the whole delay, this check can prove nothing.
    const isOver = performance.now() - start >= DELAYED;
    expect(known && !isOver).toBe(false);
    await reply;
    expect(performance.now() - start).toBeGreaterThanOrEqual(DELAYED);
  });

  test('after `delayRequests()`, the server executes a request only after the delay', async () => {
    proxy.delayRequests(3_000);
    const start = performance.now();
    const reply = client.set('key', 'value');
    await sleep(100);
    const early = await direct.get('key');
    // If the machine was paused for the whole delay, this check can prove nothing.
    const isOver = performance.now() - start >= DELAYED;
    expect(isOver ? null : early).toBeNull();
    await expect(reply).resolves.toBe('OK');
    expect(performance.now() - start).toBeGreaterThanOrEqual(DELAYED);
  });

  test('the delay of each message starts when that message arrives, and ends early if the delay is set to 0', async () => {
    proxy.delayReplies(200);
    const together = await elapsed(Promise.all(Array.from({ length: 100 }, () => client.ping())));
    expect(together).toBeGreaterThanOrEqual(198);
    // With the delays one after the other, the commands would take twenty seconds.
    expect(together).toBeLessThan(10_000);

    proxy.delayReplies(100_000);
    const late = client.ping();
    await sleep(20);
    expect(await elapsed((proxy.delayReplies(0), late))).toBeLessThan(50_000);
  });

  test('a TCP proxy keeps the order of replies when their delay becomes shorter', async () => {
    proxy.delayReplies(300);
    const first = client.incr('n');
    await sleep(20);
    proxy.delayReplies(50);
    const second = client.incr('n');
    await expect(Promise.all([first, second])).resolves.toEqual([1, 2]);
  });

  test('after `dropReplies()`, the server executes a request, and the client gets no reply', async () => {
    proxy.dropReplies();
    const reply = client.set('key', 'value');
    await until(async () => (await direct.get('key')) === 'value' && proxy.hasLostBytes);
    expect(await settledWithin(reply, 200)).toBe(false);

    await proxy.heal();
    await expect(reply).rejects.toThrow(/closed|reset|max retries/i);
  });

  test('after `dropRequests()`, the server never executes a request', async () => {
    proxy.dropRequests();
    const reply = client.set('key', 'value');
    await until(() => proxy.hasLostBytes);
    expect(await settledWithin(reply, 200)).toBe(false);

    await proxy.heal();
    await expect(reply).rejects.toThrow(/closed|reset|max retries/i);
    await expect(direct.get('key')).resolves.toBeNull();
  });

  test('a TCP proxy holds requests after `holdRequests()`, and delivers them on the same connection after `heal()`', async () => {
    proxy.holdRequests();
    const reply = client.set('key', 'value');
    expect(await settledWithin(reply, 200)).toBe(false);
    await expect(direct.get('key')).resolves.toBeNull();

    await proxy.heal();
    await expect(reply).resolves.toBe('OK');
  });

  test('a TCP proxy accepts connections and answers nothing after `blackHole()`', async () => {
    proxy.blackHole();
    const newcomer = connectTo(proxy);
    expect(await settledWithin(client.set('key', 'value'), 200)).toBe(false);
    expect(await settledWithin(newcomer.set('key', 'value'), 200)).toBe(false);
    await expect(direct.get('key')).resolves.toBeNull();
    newcomer.disconnect();
  });

  test('`cut()` resets open connections, and new connections work after `heal()`', async () => {
    proxy.delayReplies(5_000);
    const socket = createConnection(proxy.port, proxy.host);
    const failure = new Promise((resolve) => socket.once('error', resolve));
    socket.write('PING\r\n');
    await until(() => proxy.connectionCount === 2);

    proxy.cut();

    await expect(failure).resolves.toMatchObject({ code: 'ECONNRESET' });
    await proxy.heal();
    const newcomer = connectTo(proxy);
    await expect(newcomer.ping()).resolves.toBe('PONG');
    newcomer.disconnect();
  });

  test('`refuse()` refuses new connections until `heal()`, while open connections continue', async () => {
    proxy.refuse();
    const refused = createConnection(proxy.port, proxy.host);
    const failure = await new Promise((resolve) => refused.once('error', resolve));
    expect(failure).toMatchObject({ code: 'ECONNREFUSED' });
    await expect(client.ping()).resolves.toBe('PONG');

    await proxy.heal();
    const newcomer = connectTo(proxy);
    await expect(newcomer.ping()).resolves.toBe('PONG');
    newcomer.disconnect();
  });

  test('a TCP proxy ends the connection of a client when the server dies', async () => {
    const mortal = await startRedis();
    const inFront = await startTcpProxy(mortal);
    const connection = connectTo(inFront);
    await connection.ping();

    const ended = new Promise<void>((resolve) => connection.once('end', () => resolve()));
    await mortal.kill();

    await ended;
    await inFront.close();
    expect(inFront.connectionCount).toBe(0);
  });
});
