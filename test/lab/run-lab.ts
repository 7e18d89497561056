import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const LAB = fileURLToPath(new URL('../../dist/lab/main.js', import.meta.url));

/** Longest time of a lab, in milliseconds. */
export const TIMEOUT = 300_000;

export interface Ended {
  readonly code: number;
  readonly output: string;
}

/** Runs the built lab on a free port until it ends. */
export function runLab(...args: string[]): Promise<Ended> {
  return new Promise((resolve) => {
    execFile(
      process.execPath,
      [LAB, '--port', '0', ...args],
      { timeout: TIMEOUT },
      (error, stdout, stderr) => {
        resolve({ code: error ? Number(error.code ?? -1) : 0, output: stdout + stderr });
      },
    );
  });
}
