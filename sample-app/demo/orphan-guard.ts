import { type ChildProcess, spawn } from 'node:child_process';

// Handlers for signals stop what was started, but a SIGKILL leaves no time for them. It does close the pipe that this
// shell reads from, which then ends what is still on its list, and removes the directories on it. `read` and `case` are
// built into the shell: nothing else is left behind when it ends.
const SCRIPT = `
  pids=
  while read -r sign what; do
    case $sign in
      +) pids="$pids $what" ;;
      -) rest=; for p in $pids; do [ "$p" = "$what" ] || rest="$rest $p"; done; pids=$rest ;;
      /) set -- "$@" "$what" ;;
    esac
  done
  for p in $pids; do kill -9 "$p"; done
  # Until the children of those that were killed have noticed, they write.
  for d; do for try in 1 2 3 4 5; do rm -rf "$d" && break; sleep 1; done; done
`;

let shell: ChildProcess | undefined;

/** Ends this process when ours has ended, however that came. */
export function guard(pid: number): void {
  shell ??= start();
  shell.stdin?.write(`+ ${pid}\n`);
}

/** The process has ended by itself; its id may be given to another one. */
export function unguard(pid: number): void {
  shell?.stdin?.write(`- ${pid}\n`);
}

/** Removes this directory when ours has ended, unless it is gone by then. */
export function guardDirectory(path: string): void {
  shell ??= start();
  shell.stdin?.write(`/ ${path}\n`);
}

function start(): ChildProcess {
  const child = spawn('sh', ['-c', SCRIPT], { detached: true, stdio: ['pipe', 'ignore', 'ignore'] });
  // Without `sh` there is no guard.
  child.on('error', () => undefined);
  child.stdin.on('error', () => undefined);
  child.unref();
  // Neither the shell nor the pipe may keep us alive.
  (child.stdin as unknown as { unref(): void }).unref();
  return child;
}
