import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Browser } from 'playwright-core';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { until } from '../support/until.js';
import { launchChromium } from './chromium.js';
import { duplicates, open, SCREENSHOTS, startLab } from './lab-page.js';

let browser: Browser;
let folder: string;

beforeAll(async () => {
  [browser, folder] = await Promise.all([launchChromium(), mkdtemp(join(tmpdir(), 'lab-page-'))]);
  cleanUpAfterTests(() => browser.close());
  await mkdir(SCREENSHOTS, { recursive: true });
}, 400_000);

afterAll(() => rm(folder, { recursive: true, force: true }));

test('the report file of a run works in a browser without a server, also at the width of a phone', async () => {
  const report = join(folder, 'report.html');
  const { ended } = await startLab('--report', report, '8');
  await expect(ended).resolves.toEqual([0, null]);

  const { page, complaints } = await open(browser, pathToFileURL(report).href, 1_200);
  await page.locator('#runs button').first().click();
  expect(await duplicates(page)).toBe(10);
  expect(await page.locator('#chart .duplicate').count()).toBe(1);
  expect(await page.locator('#chart .asleep').count()).toBe(1);
  expect(await page.isVisible('#controls')).toBe(false);
  await page.screenshot({ path: join(SCREENSHOTS, 'report.png'), fullPage: true });

  await page.setViewportSize({ width: 375, height: 800 });
  await until(async () => Number(await page.getAttribute('#chart svg', 'width')) <= 375);
  // Wide parts have scroll bars of their own; the page itself does not scroll sideways.
  const overflow = await page.evaluate('document.documentElement.scrollWidth - innerWidth');
  expect(overflow).toBeLessThanOrEqual(0);
  await page.screenshot({ path: join(SCREENSHOTS, 'phone.png'), fullPage: true });
  expect(complaints).toEqual([]);
  await page.close();
});
