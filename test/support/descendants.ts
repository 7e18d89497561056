import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';

/** Lists the processes that a process has started, the processes that these have started, and so on. */
export function descendantsOf(pid: number): number[] {
  const parents = existsSync('/proc/self/stat') ? fromProc() : fromPs();
  const found = [pid];
  // The loop also visits elements that are added during the loop.
  for (const parent of found) {
    for (const [child, itsParent] of parents) if (itsParent === parent) found.push(child);
  }
  return found.slice(1);
}

type Parents = readonly (readonly [pid: number, parent: number])[];

/** Reads /proc, because a bare Linux has no `ps`. */
function fromProc(): Parents {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return pids.flatMap((pid) => {
    try {
      const [, parent] = /^\d+ \(.*\) \S (\d+)/s.exec(readFileSync(`/proc/${pid}/stat`, 'latin1')) ?? [];
      return [[Number(pid), Number(parent)] as const];
    } catch {
      return []; // The process has ended since the list was read.
    }
  });
}

function fromPs(): Parents {
  const lines = execFileSync('ps', ['-A', '-o', 'pid=,ppid='], { encoding: 'utf8' }).trim().split('\n');
  return lines.map((line) => {
    const [pid = 0, parent = 0] = line.trim().split(/ +/).map(Number);
    return [pid, parent];
  });
}
