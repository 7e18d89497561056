import { execFileSync } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { cleanUpAfterTests } from '../support/leftovers.js';

/** A library that shifts the wall clock of every server that is started with {@link ClockShim.env}. */
export interface ClockShim {
  readonly env: NodeJS.ProcessEnv;
  /** Puts the servers' wall clock ahead by these milliseconds, which may be negative. */
  shift(milliseconds: number): void;
}

/** Builds the shim. Returns the reason as a sentence if this machine cannot build it. */
export function buildClockShim(): ClockShim | string {
  if (process.platform !== 'linux') return 'LD_PRELOAD works on Linux only';
  const directory = mkdtempSync(join(tmpdir(), 'clock-shim-'));
  cleanUpAfterTests(() => rm(directory, { recursive: true, force: true }));
  const library = join(directory, 'clock-shim.so');
  try {
    const source = resolve('test/faults/clock-shim.c');
    execFileSync('cc', ['-shared', '-fPIC', '-O1', '-o', library, source], { stdio: 'pipe' });
  } catch (error) {
    return `there is no working C compiler (cc): ${(error as Error).message.split('\n')[0]}`;
  }
  const file = join(directory, 'shift');
  const shift = (milliseconds: number): void => {
    const bytes = Buffer.alloc(8);
    bytes.writeBigInt64LE(BigInt(milliseconds));
    // The file keeps its length: a server that reads a truncated mapping is killed (SIGBUS).
    writeFileSync(file, bytes, { flag: 'r+' });
  };
  writeFileSync(file, Buffer.alloc(8));
  return { env: { LD_PRELOAD: library, CLOCK_SHIFT: file }, shift };
}
