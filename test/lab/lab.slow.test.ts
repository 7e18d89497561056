import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from '@jest/globals';

const LAB = fileURLToPath(new URL('../../dist/lab/main.js', import.meta.url));
const TIMEOUT = 300_000;

interface Ended {
  readonly code: number;
  readonly output: string;
}

let folder: string;
/** The results of two labs. The labs run at the same time, because they mostly wait. */
let kinds: Promise<Ended>;
let stale: Promise<Ended>;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'lab-'));
  kinds = lab('13', '14', '15');
  stale = lab('--report', join(folder, 'report.html'), '8');
});

afterAll(() => rm(folder, { recursive: true, force: true }));

function lab(...args: string[]): Promise<Ended> {
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      [LAB, '--port', '0', '--report', join(folder, 'other.html'), ...args],
      { timeout: TIMEOUT },
      (error, stdout, stderr) => {
        resolve({ code: error ? Number(error.code ?? -1) : 0, output: stdout + stderr });
      },
    );
  });
}

test(
  'the lab shows that only a token check refuses the late write of a paused holder',
  async () => {
    const { code, output } = await stale;

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

test(
  'the lab shows that two permits admit no third holder, and shared locks do not starve a writer',
  async () => {
    const { code, output } = await kinds;

    expect(output).toMatch(/a third holder came in beside two/);
    expect(output).toMatch(/until no more readers came; \d+ readers that came later acquired before it/);
    expect(output).toMatch(/two at once.*, never three; 12 tasks pushed once each/);
    expect(output).toMatch(/only for the present readers; 24 tasks pushed once each/);
    expect(output).not.toContain('NOT AS DESCRIBED');
    expect(code).toBe(0);
  },
  TIMEOUT,
);

test('the lab starts no server and ends if the given scenario does not exist', async () => {
  const { code, output } = await lab('16');

  expect(code).toBe(1);
  expect(output).toMatch(/^There is no scenario "16"\.\n/);
  expect(output).not.toContain('PostgreSQL');
});

test('the lab ends with advice when its port is in use', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;

  const { code, output } = await lab('--port', String(port), '8');

  server.close();
  expect(code).toBe(1);
  expect(output).toBe(`Port ${port} is in use. Choose another one: npm run lab -- --port 4180\n`);
});
