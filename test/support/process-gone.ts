import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** Resolves when the process has ended; rejects when it still lives after `timeout` ms. */
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

/** An orphan that has ended keeps its id until process 1 collects it, which in a container may be never. */
function isZombie(pid: number): boolean {
  try {
    return /\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'latin1'));
  } catch {
    return false; // no /proc: not Linux
  }
}
