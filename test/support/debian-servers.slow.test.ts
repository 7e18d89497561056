import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'debian-servers-'));
  await mkdir(join(folder, 'bin'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** Runs `npm run test:servers` with an empty cache and a script in place of `apt-get`. */
async function testServers(aptGet: string, ...names: string[]): Promise<{ code: number; output: string }> {
  await writeFile(join(folder, 'bin', 'apt-get'), `#!/bin/sh\n${aptGet}\n`, { mode: 0o755 });
  const env = {
    ...process.env,
    PATH: `${join(folder, 'bin')}${delimiter}${process.env['PATH']}`,
    XDG_CACHE_HOME: join(folder, 'cache'),
  };
  return new Promise((resolve) => {
    execFile(process.execPath, ['test/support/test-servers.mjs', ...names], { env }, (error, stdout) =>
      resolve({ code: error ? Number(error.code) : 0, output: stdout }),
    );
  });
}

test('`npm run test:servers` skips a server that cannot be downloaded, prints the reason and leaves no files', async () => {
  const away =
    'case "$*" in *indextargets*) echo http://127.0.0.1:1/;; *) echo "E: no such suite" >&2; exit 100;; esac';
  const { code, output } = await testServers(away, 'redis@trixie', 'valkey@trixie');
  expect(code).toBe(0);
  expect(output).toBe(
    '== redis@trixie: skipped, because the download failed: E: no such suite\n' +
      '== valkey@trixie: skipped, because the download failed: E: no such suite\n',
  );
  await expect(readdir(join(folder, 'cache', 'nestjs-redlock', 'servers'))).resolves.toEqual([]);
});

test('`npm run test:servers` refuses an unknown server, and lists the known servers', async () => {
  const { code, output } = await testServers('exit 1', 'redis@sarge');
  expect(code).toBe(1);
  expect(output).toMatch(/there is no server "redis@sarge"; there are: redis@bookworm, /);
});
