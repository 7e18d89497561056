import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { runLab, TIMEOUT } from './run-lab.js';

let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'lab-'));
});

afterAll(() => rm(folder, { recursive: true, force: true }));

const lab = (...args: string[]) => runLab('--report', join(folder, 'report.html'), ...args);

test(
  'the lab shows that only a token check refuses the late write of a paused holder',
  async () => {
    const { code, output } = await lab('8');

    expect(output).toMatch(/the stale write went through: 10 duplicates/);
    expect(output).toMatch(/10 tasks pushed once each; the late write was refused/);
    expect(output).not.toContain('NOT AS DESCRIBED');
    expect(code).toBe(0);
    const page = await readFile(join(folder, 'report.html'), 'utf8');
    expect(page).toContain('"duplicates":10');
    expect(page).not.toMatch(/(src|href)="?https?:/);
  },
  TIMEOUT,
);

test('the lab starts no server and ends if the given scenario does not exist', async () => {
  const { code, output } = await lab('17');

  expect(code).toBe(1);
  expect(output).toMatch(/^There is no scenario "17"\.\n/);
  expect(output).not.toContain('PostgreSQL');
});

test('the lab ends with advice when its port is in use', async () => {
  // The other program answers nothing. It reads, so that it learns of the end of the lab's connection.
  const server = createServer((socket) => socket.resume()).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;

  const { code, output } = await lab('--port', String(port), '8');

  server.close();
  await once(server, 'close');
  expect(code).toBe(1);
  expect(output).toBe(`Port ${port} is in use. Choose another one: npm run lab -- --port 4180\n`);
});
