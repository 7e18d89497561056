import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Browser, Page } from 'playwright-core';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { newPage } from './chromium.js';

const LAB = fileURLToPath(new URL('../../dist/lab/main.js', import.meta.url));
/** The folder of the pictures of the page. */
export const SCREENSHOTS = fileURLToPath(new URL('../../test-artefacts/', import.meta.url));
export const PATIENCE = 60_000;

/** Starts a lab with its page. The lab runs until the end of the test file. */
export async function startLab(
  ...args: string[]
): Promise<{ child: ChildProcess; url: string; ended: Promise<unknown> }> {
  const child = spawn(process.execPath, [LAB, '--port', '0', ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, BROWSER: 'none' },
  });
  const ended = once(child, 'exit');
  cleanUpAfterTests(async () => {
    child.kill('SIGINT');
    await ended;
  });
  let url: string | undefined;
  for await (const line of createInterface({ input: child.stdout })) {
    [, url] = /Page: +(http\S+)/.exec(line) ?? [];
    if (url !== undefined) break;
  }
  if (url === undefined) throw new Error('the lab ended without saying where its page is');
  // Nobody reads its further lines. A lab that writes more of them than a pipe holds would wait for ever.
  child.stdout.resume();
  return { child, url, ended };
}

export async function duplicates(page: Page): Promise<number> {
  return Number.parseInt((await page.textContent('#duplicates')) ?? '0', 10);
}

/** Opens a page. `complaints` collects errors of the page, and its requests to other origins. */
export async function open(
  browser: Browser,
  url: string,
  width: number,
): Promise<{ page: Page; complaints: string[] }> {
  const page = await newPage(browser, { viewport: { width, height: 900 } });
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => void (message.type() === 'error' && complaints.push(message.text())));
  page.on(
    'request',
    (request) =>
      void (new URL(request.url()).origin === new URL(url).origin || complaints.push(request.url())),
  );
  await page.goto(url);
  return { page, complaints };
}
