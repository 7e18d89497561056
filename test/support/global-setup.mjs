import { spawn } from 'node:child_process';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensureRedisServer } from './install-redis.mjs';

// JavaScript, not TypeScript: Jest loads its global set-up without the transform when the package is ESM.
export default async function setUp() {
  await ensureRedisServer();
  const folder = await mkdtemp(join(tmpdir(), 'test-run-'));
  removeAtTheEnd(folder);
  // Jest gives its environment to the workers; see run-folder.ts.
  process.env['TEST_RUN_FOLDER'] = folder;
}

/** However this process ends: a `globalTeardown` does not run after a SIGKILL. The end closes the pipe that the shell reads. */
function removeAtTheEnd(folder) {
  const script = 'while read -r _; do :; done; rm -rf "$1"';
  const stdio = ['pipe', 'ignore', 'ignore'];
  const shell = spawn('sh', ['-c', script, 'remove', folder], { detached: true, stdio });
  shell.unref();
  shell.stdin.unref();
}
