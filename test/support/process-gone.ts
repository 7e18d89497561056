import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** Resolves when the process has ended; rejects when it still runs after `timeout` milliseconds. */
export async function processGone(pid: number, timeout = 120_000): Promise<void> {
  const deadline = performance.now() + timeout;
  while (exists(pid)) {
    if (performance.now() > deadline) {
      throw new Error(`process ${pid} has not ended within ${timeout} ms`);
    }
    await sleep(10);
  }
}

function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !isZombie(pid);
  } catch {
    return false;
  }
}

/**
 * True for a process that has ended and keeps its id until its parent collects it. In a container, process 1 may never
 * collect orphans.
 */
function isZombie(pid: number): boolean {
  try {
    return /\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
  } catch {
    return false; // Only Linux has /proc.
  }
}
