import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, test } from '@jest/globals';
import { runCommand } from './consumers/run-command.js';
import { cleanUpAfterTests } from './support/leftovers.js';

// On GitHub, each change builds the API reference for the tests of the site, too.

test('the API reference builds, so all exports have docstrings with working links', async () => {
  const out = await mkdtemp(join(tmpdir(), 'api-'));
  cleanUpAfterTests(() => rm(out, { recursive: true, force: true }));
  await runCommand('npm', ['run', '-s', 'docs:api', '--', '--out', out], {
    cwd: resolve(import.meta.dirname, '..'),
  });
  await expect(readFile(join(out, 'nestjs-redlock.md'), 'utf8')).resolves.toContain('### LockService');
  await expect(readFile(join(out, 'nestjs-redlock.fencing.md'), 'utf8')).resolves.toContain(
    '### FencedRegister',
  );
});
