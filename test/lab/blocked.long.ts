import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { runLab, TIMEOUT } from './run-lab.js';

test(
  'the lab shows that a job that blocks its event loop loses its lock, and keeps it if a thread renews the lock',
  async () => {
    const folder = await mkdtemp(join(tmpdir(), 'lab-'));
    cleanUpAfterTests(() => rm(folder, { recursive: true, force: true }));
    const { code, output } = await runLab('--report', join(folder, 'report.html'), '16');

    expect(output).toMatch(/another one began the same work.*20 tasks pushed once each/);
    expect(output).toMatch(/the same with renew: 'thread'.*20 tasks pushed once each/s);
    expect(output).not.toContain('NOT AS DESCRIBED');
    expect(code).toBe(0);
  },
  TIMEOUT,
);
