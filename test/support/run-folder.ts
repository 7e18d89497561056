import { mkdtempSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { cleanUpAfterTests } from './leftovers.js';

let own: string | undefined;

/** A folder for what test files share: `global-setup.mjs` makes it. Without Jest, in a benchmark, this process has one. */
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
