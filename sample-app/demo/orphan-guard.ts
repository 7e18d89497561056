import { type ChildProcess, spawn } from 'node:child_process';

// Signal handlers stop all processes that were started, but a SIGKILL leaves no time for handlers. The end of our
// process closes the pipe of this shell. The shell then kills the processes of its list, and removes the directories of
// its list. While the shell waits, it runs only builtins (`read`, `case`), so it has no child processes of its own.
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
  # Children of the killed processes may still write for a moment.
  for d; do for try in 1 2 3 4 5; do rm -rf "$d" && break; sleep 1; done; done
`;

let shell: ChildProcess | undefined;

/** Kills the process when our process has ended for any reason. */
export function guard(pid: number): void {
  shell ??= start();
  shell.stdin?.write(`+ ${pid}\n`);
}

/** Removes a process that has ended from the list: the system may give its id to another process. */
export function unguard(pid: number): void {
  shell?.stdin?.write(`- ${pid}\n`);
}

/** Removes the directory when our process has ended. */
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
  // Neither the shell nor the pipe may keep our process alive.
  (child.stdin as unknown as { unref(): void }).unref();
  return child;
}
