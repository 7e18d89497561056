import { execFile } from 'node:child_process';
import { canInstall, install } from './apt.mjs';

/**
 * Ensures that there is a `redis-server` on the PATH. Without one, installs the package if that needs no questions
 * (root on Debian or Ubuntu).
 *
 * @throws Error with the commands that install one
 */
export async function ensureRedisServer() {
  if (await redisServerWorks()) {
    return;
  }
  let cause;
  if (canInstall()) {
    console.log('No redis-server on the PATH: installing the package with apt-get.');
    try {
      install('redis-server');
      if (await redisServerWorks()) {
        return;
      }
    } catch (error) {
      cause = error;
    }
  }
  throw new Error(
    [
      'The tests need a real redis-server (7.0 or later) on the PATH and there is none.',
      '  Debian, Ubuntu:  sudo apt-get install redis-server   (done by the tests themselves when they run as root)',
      '  Alpine:          apk add redis',
      '  macOS:           brew install redis',
      '  Fedora:          sudo dnf install redis',
      'The tests start and stop their own servers; none has to run.',
    ].join('\n'),
    { cause },
  );
}

function redisServerWorks() {
  return new Promise((resolve) => {
    execFile('redis-server', ['--version'], (error) => resolve(error === null));
  });
}
