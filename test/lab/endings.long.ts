import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, test } from '@jest/globals';
import { descendantsOf } from '../support/descendants.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { processGone } from '../support/process-gone.js';
import { until } from '../support/until.js';

const LAB = fileURLToPath(new URL('../../dist/lab/main.js', import.meta.url));
const TIMEOUT = 300_000;

/** A lab in a process of its own, with a folder of its own for its files. */
class LabProcess {
  output = '';
  /** Events that a viewer of the page receives. */
  events = '';
  /** Exit code of the lab, once it has ended. */
  code: number | null | undefined;
  readonly child: ChildProcess;

  constructor(
    readonly folder: string,
    args: readonly string[],
  ) {
    this.child = spawn(process.execPath, [LAB, '--report', join(folder, 'report.html'), ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, TMPDIR: folder },
    });
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream?.on('data', (chunk: Buffer) => (this.output += chunk.toString()));
    }
    const ended = once(this.child, 'close').then(([code]) => (this.code = code as number | null));
    cleanUpAfterTests(async () => {
      this.child.kill('SIGKILL');
      await ended;
      await rm(folder, { recursive: true, force: true, maxRetries: 5 });
    });
  }

  get url(): string | undefined {
    return /Page: +(http\S+)/.exec(this.output)?.[1];
  }

  /** Number of pauses of a holder so far. After a pause, a scenario is under way. */
  get pauses(): number {
    return this.events.match(/"kind":"paused"/g)?.length ?? 0;
  }

  async watch(): Promise<void> {
    await until(() => this.url !== undefined, TIMEOUT);
    const { body } = await fetch(`${this.url}/events`);
    const decoder = new TextDecoder();
    const read = async (): Promise<void> => {
      for await (const chunk of body ?? []) this.events += decoder.decode(chunk as Uint8Array);
    };
    // The stream ends with the lab.
    void read().catch(() => undefined);
  }
}

async function startLab(...args: string[]): Promise<LabProcess> {
  const folder = await mkdtemp(join(tmpdir(), 'lab-'));
  // As root, the lab runs PostgreSQL under another account, which must be able to enter this folder.
  await chmod(folder, 0o755);
  return new LabProcess(folder, args);
}

/** The ids of the processes of a lab: at least the guard, three instances, PostgreSQL and two Redis servers. */
async function allProcessesOf(lab: LabProcess): Promise<readonly number[]> {
  let processes: readonly number[] = [];
  await until(() => (processes = descendantsOf(lab.child.pid ?? 0)).length >= 7);
  return processes;
}

/** Scenarios that last longer than these tests wait, so that the lab does not end by itself. */
const LONG = Array.from({ length: 20 }, () => '8');

describe('a lab that runs a scenario', () => {
  let lab: LabProcess;

  beforeAll(async () => {
    lab = await startLab('--port', '0', ...LONG);
    await lab.watch();
    await until(() => lab.pauses > 0, TIMEOUT);
  }, TIMEOUT);

  test(
    'a second lab reports the running lab and ends, and the running lab continues',
    async () => {
      const before = lab.pauses;
      const second = await startLab('--port', new URL(lab.url ?? '').port, '8');
      await until(() => second.code !== undefined, TIMEOUT);

      expect(second.code).toBe(1);
      expect(second.output).toBe(
        `A lab is running already (process ${lab.child.pid}): see ${lab.url}, or end it with Ctrl-C where it was started.\n`,
      );
      await until(() => lab.pauses > before, TIMEOUT);
      expect(lab.output).not.toContain('NOT AS DESCRIBED');
    },
    TIMEOUT,
  );

  test(
    'a lab that runs a scenario ends on SIGINT, and leaves no process and no file',
    async () => {
      const processes = await allProcessesOf(lab);

      lab.child.kill('SIGINT');

      await until(() => lab.output.includes('Ended by SIGINT; stopping everything that was started.'));
      await until(async () => (await readdir(lab.folder)).length === 0);
      // The lab would wait for an event for 40 seconds if the signal did not end that wait.
      await until(() => lab.code !== undefined, 20_000);
      expect(lab.code).toBe(1);
      await Promise.all(processes.map((pid) => processGone(pid)));
    },
    TIMEOUT,
  );
});

test(
  'a lab that runs a scenario leaves no process and no file after SIGKILL',
  async () => {
    const lab = await startLab('--port', '0', ...LONG);
    await lab.watch();
    await until(() => lab.pauses > 0, TIMEOUT);
    const processes = await allProcessesOf(lab);

    lab.child.kill('SIGKILL');

    await Promise.all(processes.map((pid) => processGone(pid)));
    await until(async () => (await readdir(lab.folder)).length === 0);
    expect(lab.output).not.toContain('NOT AS DESCRIBED');
  },
  TIMEOUT,
);
