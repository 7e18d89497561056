import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];
const FOLDERS = (process.env.PATH ?? '').split(':');

function findChromium(): string | undefined {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  return NAMES.flatMap((name) => FOLDERS.map((folder) => `${folder}/${name}`)).find(existsSync);
}

/** Installs Debian's package if this process runs as root and has apt-get. */
function installChromium(): void {
  if (process.getuid?.() !== 0 || !existsSync('/usr/bin/apt-get')) return;
  console.log('No Chromium on the PATH: installing the package with apt-get.');
  const apt = (...args: string[]): void => {
    execFileSync('/usr/bin/apt-get', ['-q', '-o', 'DPkg::Lock::Timeout=120', ...args], {
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
      stdio: ['ignore', 'ignore', 'inherit'],
      timeout: 300_000,
    });
  };
  apt('update');
  apt('install', '-y', '--no-install-recommends', 'chromium', 'fonts-dejavu-core');
}

/**
 * Milliseconds until a wait for something in a page fails. It only ends a test that hangs: Playwright's own 30 s are too
 * short for a busy machine.
 */
const PATIENCE_MS = 120_000;

export async function newPage(browser: Browser, options?: BrowserContextOptions): Promise<Page> {
  const page = await browser.newPage(options);
  page.setDefaultTimeout(PATIENCE_MS);
  return page;
}

/** @throws Error that says what to install */
export async function launchChromium(): Promise<Browser> {
  if (!findChromium()) installChromium();
  const executablePath = findChromium();
  if (!executablePath) {
    throw new Error(
      'The tests of the page need Chromium, and none is on the PATH: apt-get install chromium, ' +
        'or set CHROMIUM to the program of a Chromium or Chrome.',
    );
  }
  // As root, Chromium starts only without its sandbox. It needs none here: it loads only pages of this repository.
  return chromium.launch({ executablePath, args: process.getuid?.() === 0 ? ['--no-sandbox'] : [] });
}
