import { spawn, type ChildProcess } from 'node:child_process';

/**
 * Kills a process and removes its directory when this process dies, however it dies: a SIGKILL leaves no time
 * for handlers of our own, but it closes the pipe that the watchdog waits on. End the watchdog (SIGKILL) when the
 * watched process has ended: the id may be given to another one.
 */
export function startWatchdog(pid: number, directory: string): ChildProcess {
  // `read` is built into the shell; a `cat` would be left behind when the shell is killed.
  const script = 'while read -r _; do :; done; kill -9 "$1"; rm -rf "$2"';
  const watchdog = spawn('sh', ['-c', script, 'watchdog', String(pid), directory], {
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  // Neither the process nor the pipe may keep the test process alive.
  watchdog.unref();
  (watchdog.stdin as unknown as { unref(): void }).unref();
  return watchdog;
}
