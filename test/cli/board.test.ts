import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { request } from 'node:http';
import { CliProcess, runCli } from '../support/cli.js';
import { type RedisServer, startRedis } from '../support/redis-server.js';

let redis: RedisServer;
let command: CliProcess;
let port: number;

beforeAll(async () => {
  redis = await startRedis();
  command = new CliProcess(['board', '--node', redis.url]);
  await command.says(/Board: .*:\d+\//);
  port = Number(/:(\d+)\//.exec(command.stdout)?.[1]);
});
afterAll(() => redis.stop());

/** Sends a request with exactly this path and these headers; `fetch` would change them. Resolves to the status code. */
function statusOf(path: string, method = 'GET', headers: Record<string, string> = {}): Promise<number> {
  return new Promise((resolve, reject) => {
    const asking = request({ port, host: '127.0.0.1', path, method, headers }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    asking.once('error', reject);
    asking.end();
  });
}

test('the `board` command answers 500 to a path that is not a URL, and continues to serve', async () => {
  await expect(statusOf('//')).resolves.toBe(500);
  await expect(statusOf('/')).resolves.toBe(200);
});

test.each<[string, number, string, string, Record<string, string>]>([
  ['a request for another host name', 403, '/', 'GET', { host: 'evil.example' }],
  ['a request from a page of another site', 403, '/', 'GET', { origin: 'http://evil.example' }],
  ['a request with the method PUT', 405, '/', 'PUT', {}],
  ['a release without the header x-redlock-board', 403, '/release', 'POST', {}],
  ['a release without --allow-release', 403, '/release', 'POST', { 'x-redlock-board': '1' }],
  ['a request for a file that does not exist', 404, '/__proto__', 'GET', {}],
])('the `board` command refuses %s with status %i', async (_what, status, path, method, headers) => {
  await expect(statusOf(path, method, headers)).resolves.toBe(status);
});

test('the `board` command refuses a port in use, and its message names the option --port', async () => {
  const { code, stderr } = await runCli(['board', '--node', redis.url, '--port', String(port)]);
  expect([code, stderr]).toEqual([
    2,
    expect.stringContaining(`Port ${port} is in use. Write another port after --port`),
  ]);
});

test('the `board` command ends on Ctrl-C', async () => {
  command.signal('SIGINT');
  await expect(command.ended).resolves.toMatchObject({ code: 0, stderr: '' });
});
