import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { runLab, TIMEOUT } from './run-lab.js';

test(
  'the lab shows that two permits admit no third holder, and shared locks do not starve a writer',
  async () => {
    const folder = await mkdtemp(join(tmpdir(), 'lab-'));
    cleanUpAfterTests(() => rm(folder, { recursive: true, force: true }));
    const { code, output } = await runLab('--report', join(folder, 'report.html'), '13', '14', '15');

    expect(output).toMatch(/a third holder came in beside two/);
    expect(output).toMatch(/until no more readers came; \d+ readers that came later acquired before it/);
    expect(output).toMatch(/two at once.*, never three; 12 tasks pushed once each/);
    expect(output).toMatch(/only for the present readers; 24 tasks pushed once each/);
    expect(output).not.toContain('NOT AS DESCRIBED');
    expect(code).toBe(0);
  },
  TIMEOUT,
);
