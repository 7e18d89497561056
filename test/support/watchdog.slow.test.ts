import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { transform } from '@swc/core';
import { processGone } from './process-gone.js';
import { until } from './until.js';

// The test kills the process of this script, which stands for a test process. The script starts another process, paused
// or not, with a watchdog.
const SCRIPT = `
  import { spawn } from 'node:child_process';
  import { mkdtempSync } from 'node:fs';
  import { startWatchdog } from './watchdog.mjs';
  const directory = mkdtempSync('watched-');
  const { pid } = spawn('sleep', ['60'], { detached: true, stdio: 'ignore' });
  startWatchdog(pid, directory);
  if (process.argv[2] === 'paused') process.kill(pid, 'SIGSTOP');
  console.log(JSON.stringify({ pid, directory }));
  setInterval(() => undefined, 1_000);
`;

let folder: string;
let onTestEnd: () => unknown = () => undefined;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'watchdog-test-'));
  const source = await readFile(join(import.meta.dirname, 'watchdog.ts'), 'utf8');
  const { code } = await transform(source, { jsc: { parser: { syntax: 'typescript' }, target: 'es2022' } });
  await writeFile(join(folder, 'watchdog.mjs'), code);
  await writeFile(join(folder, 'main.mjs'), SCRIPT);
});

afterEach(() => void onTestEnd());
afterAll(() => rm(folder, { recursive: true, force: true }));

test.each(['running', 'paused'])(
  'a watchdog ends a %s process when the process that started it is killed',
  async (state) => {
    const child = spawn(process.execPath, ['main.mjs', state], {
      cwd: folder,
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    onTestEnd = () => child.kill('SIGKILL');
    const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
    const { pid, directory } = JSON.parse(line) as { pid: number; directory: string };
    process.kill(pid, 0);

    child.kill('SIGKILL');

    await processGone(pid);
    const left = (): boolean => existsSync(join(folder, directory));
    await until(() => !left());
    expect(left()).toBe(false);
  },
);
