// Makes the pictures of docs/lab.md from the file of `npm run lab`:
// node lab/page/pictures.mjs lab-report.html
import { mkdir } from 'node:fs/promises';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const [report = 'lab-report.html'] = process.argv.slice(2);
const folder = new URL('../../docs/lab/', import.meta.url).pathname;
/** Pictures, each with the number of its scenario, the number of its run in that scenario, and its file name. */
const PICTURES = [
  ...[1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 14].map((scenario) => [scenario, 0, `${scenario}.png`]),
  [8, 1, '8-token.png'],
  [9, 1, '9-guard.png'],
  [10, 4, '10.png'],
  [12, 1, '12.png'],
  [15, 0, '15-permits.png'],
  [15, 1, '15-shared.png'],
  [16, 0, '16.png'],
  [16, 1, '16-thread.png'],
];

await mkdir(folder, { recursive: true });
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
});
const page = await browser.newPage({ viewport: { width: 900, height: 900 } });
await page.goto(pathToFileURL(resolve(report)).href);
for (const [scenario, run, name] of PICTURES) {
  const rows = page
    .locator('#runs tr')
    .filter({ has: page.locator(`td:first-child:text-is("${scenario}")`) });
  // A report may have only some of the scenarios: take no pictures of the others.
  if ((await rows.count()) <= run) continue;
  await rows.nth(run).locator('button').click();
  await page.locator('#chart').screenshot({ path: folder + name });
}
await browser.close();
