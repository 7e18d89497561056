import { existsSync } from 'node:fs';
import { createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from '@jest/globals';
import { LOOPBACK } from './free-port.js';
import { processGone } from './process-gone.js';
import { ping } from './redis-ping.js';
import { startRedis, startRedisNodes } from './redis-server.js';

describe('startRedis', () => {
  test('`startRedis` resolves when the server answers, and `stop()` ends the server and removes its working directory', async () => {
    const redis = await startRedis();
    const { pid, workingDirectory } = redis;
    await expect(redis.client().ping()).resolves.toBe('PONG');

    await redis.stop();

    await processGone(pid);
    expect(existsSync(workingDirectory)).toBe(false);
    await expect(ping(redis.host, redis.port)).resolves.toBe(false);
    await redis.stop();
  });

  test('a server of `startRedis` keeps nothing on disk by default, so a restart loses its data', async () => {
    const redis = await startRedis();
    const client = redis.client();
    await client.set('key', 'value');
    const { pid, port } = redis;

    await redis.restart();

    expect(redis.pid).not.toBe(pid);
    expect(redis.port).toBe(port);
    await expect(client.get('key')).resolves.toBeNull();
  });

  test('a server that `startRedis` starts with persistence keeps its data over a kill and a restart', async () => {
    const redis = await startRedis({ args: ['--appendonly', 'yes', '--appendfsync', 'always'] });
    await redis.client().set('key', 'value');

    await redis.kill();
    expect(redis.running).toBe(false);
    await redis.restart();

    await expect(redis.client().get('key')).resolves.toBe('value');
  });

  test('`pause()` stops all answers of a server, and after `resume()` the server executes the pending commands', async () => {
    const redis = await startRedis();
    const client = redis.client();
    await client.ping();

    redis.pause();
    let answered = false;
    const reply = client.set('key', 'value').finally(() => (answered = true));
    await sleep(200);
    expect(answered).toBe(false);
    redis.resume();

    await expect(reply).resolves.toBe('OK');
  });

  test('`stop()` ends a paused server', async () => {
    const redis = await startRedis();
    const { pid } = redis;
    redis.pause();
    await redis.stop();
    await expect(processGone(pid)).resolves.toBeUndefined();
  });

  test('`startRedis` rejects with the output of redis-server when the server does not start', async () => {
    await expect(startRedis({ args: ['--no-such-option', '1'] })).rejects.toThrow(/no-such-option/);
  });

  test('`startRedis` rejects when another server listens on the given port', async () => {
    const other = await startRedis();
    await expect(startRedis({ port: other.port })).rejects.toThrow(`port ${other.port} is taken`);

    const silent = createServer().listen(0, LOOPBACK);
    await new Promise((resolve) => silent.once('listening', resolve));
    const { port } = silent.address() as { port: number };
    await expect(startRedis({ port })).rejects.toThrow(`port ${port} is taken`);
    silent.close();
  });

  test('`startRedisNodes` starts several independent servers', async () => {
    const nodes = await startRedisNodes(3);
    await nodes[0]!.client().set('key', 'value');
    await expect(nodes[1]!.client().get('key')).resolves.toBeNull();
    expect(new Set(nodes.map((node) => node.port)).size).toBe(3);
  });
});
