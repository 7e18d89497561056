import { execFile, execFileSync } from 'node:child_process';
import { existsSync, rmSync, writeFileSync } from 'node:fs';

const POLICY = '/usr/sbin/policy-rc.d';

/**
 * Makes sure that `redis-server` is on the PATH: uses the one that is there, else installs the package when
 * that needs no questions (root on Debian or Ubuntu), else says what to do.
 */
export async function ensureRedisServer() {
  if (await redisServerWorks()) {
    return;
  }
  let cause;
  if (canUseApt()) {
    try {
      installWithApt();
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

function canUseApt() {
  return process.getuid?.() === 0 && existsSync('/usr/bin/apt-get');
}

function installWithApt() {
  console.log('No redis-server on the PATH: installing the package with apt-get.');
  // The Debian package starts a server on port 6379. invoke-rc.d asks this file first; 101 means "do not start".
  const ownPolicy = !existsSync(POLICY);
  if (ownPolicy) {
    writeFileSync(POLICY, '#!/bin/sh\nexit 101\n', { mode: 0o755 });
  }
  try {
    apt('update');
    apt('install', '-y', '--no-install-recommends', 'redis-server');
  } finally {
    if (ownPolicy) {
      rmSync(POLICY, { force: true });
    }
  }
}

function apt(...args) {
  // The lock may be held by unattended-upgrades of a machine that has just booted.
  execFileSync('/usr/bin/apt-get', ['-q', '-o', 'DPkg::Lock::Timeout=120', ...args], {
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    stdio: ['ignore', 'ignore', 'inherit'],
    timeout: 300_000,
  });
}
