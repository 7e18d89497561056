import { execFileSync } from 'node:child_process';
import { existsSync, rmSync, writeFileSync } from 'node:fs';

const APT = '/usr/bin/apt-get';
const POLICY = '/usr/sbin/policy-rc.d';

/** True if apt-get can install a package without a question: as root, on Debian or Ubuntu. */
export function canInstall() {
  return process.getuid?.() === 0 && existsSync(APT);
}

/** True after this process has updated the lists of packages. */
let isUpdated = false;

/** Installs packages, and does not start their servers. */
export function install(...packages) {
  // A Debian package starts its server after the installation, unless this policy script exits with 101.
  const ownPolicy = !existsSync(POLICY);
  if (ownPolicy) {
    writeFileSync(POLICY, '#!/bin/sh\nexit 101\n', { mode: 0o755 });
  }
  try {
    if (!isUpdated) apt('update');
    isUpdated = true;
    apt('install', '-y', '--no-install-recommends', ...packages);
  } finally {
    if (ownPolicy) {
      rmSync(POLICY, { force: true });
    }
  }
}

function apt(...args) {
  // unattended-upgrades may hold the lock on a machine that has just booted, and a download may fail once.
  const patience = ['-o', 'DPkg::Lock::Timeout=120', '-o', 'Acquire::Retries=3'];
  execFileSync(APT, ['-q', ...patience, ...args], {
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    stdio: ['ignore', 'ignore', 'inherit'],
    timeout: 300_000,
  });
}
