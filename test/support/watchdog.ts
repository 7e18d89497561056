import { spawn, type ChildProcess } from 'node:child_process';

/**
 * Starts a watchdog for another process. When our process has ended, even by SIGKILL, the watchdog kills the watched
 * process and removes its directory. A SIGKILL leaves no time for our own handlers, but closes the pipe that the watchdog
 * reads. Kill the watchdog (SIGKILL) when the watched process has ended: the system may give the id of the watched
 * process to another process.
 */
export function startWatchdog(pid: number, directory: string): ChildProcess {
  // `read` is part of the shell. A `cat` would stay behind when the shell is killed.
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
