import { mkdtempSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { cleanUpAfterTests } from './leftovers.js';

let own: string | undefined;

/**
 * Returns the folder that test files share, made by `global-setup.mjs`. A benchmark runs without Jest, and gets a
 * folder of its own.
 */
export function runFolder(): string {
  const given = process.env['TEST_RUN_FOLDER'];
  if (given !== undefined) return given;
  if (own === undefined) {
    const folder = mkdtempSync(join(tmpdir(), 'test-run-'));
    cleanUpAfterTests(() => rm(folder, { recursive: true, force: true }));
    own = folder;
  }
  return own;
}
