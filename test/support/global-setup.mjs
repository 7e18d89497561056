import { spawn } from 'node:child_process';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ensureRedisServer } from './install-redis.mjs';

// This file is JavaScript, because Jest does not transform its global set-up in an ESM package.
export default async function setUp() {
  await ensureRedisServer();
  const folder = await mkdtemp(join(tmpdir(), 'test-run-'));
  removeAtEnd(folder);
  // The workers inherit this variable; see run-folder.ts.
  process.env['TEST_RUN_FOLDER'] = folder;
}

/**
 * Removes the folder when this process has ended, even by SIGKILL, after which Jest runs no `globalTeardown`. The shell
 * waits until this process closes its end of the pipe.
 */
function removeAtEnd(folder) {
  const script = 'while read -r _; do :; done; rm -rf "$1"';
  const stdio = ['pipe', 'ignore', 'ignore'];
  const shell = spawn('sh', ['-c', script, 'remove', folder], { detached: true, stdio });
  shell.unref();
  shell.stdin.unref();
}
