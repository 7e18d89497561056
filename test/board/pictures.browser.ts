import { mkdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { beforeAll, expect, test } from '@jest/globals';
import type { Browser } from 'playwright-core';
import { launchChromium, newPage } from '../lab/chromium.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { type BoardApp, usePageFiles } from './board-app.js';
import { everyView, scene } from './scene.js';

// `npm run board:pictures` writes the pictures of docs/board.md. Run `pngquant --nofs --strip --speed 1 --ext .png --force 32
// docs/board/*.png` before you commit them: pngquant reduces them to a third of their size. Even so the pictures are a
// tenth of the download of the package.

const FOLDER = resolve(process.env.PICTURES ?? 'test-artefacts');

let browser: Browser;
let board: BoardApp;

beforeAll(async () => {
  await usePageFiles();
  [browser, board] = await Promise.all([launchChromium(), scene()]);
  cleanUpAfterTests(() => browser.close());
  await mkdir(FOLDER, { recursive: true });
}, 400_000);

test.each([
  ['light', { width: 1_280, height: 680 }, ['locks', 'details', 'timeline', 'question']],
  ['dark', { width: 1_280, height: 680 }, ['details']],
  ['light', { width: 390, height: 760 }, ['locks']],
] as const)(
  'writes the pictures of the page in the colour scheme %s with the viewport %o',
  async (colorScheme, viewport, wanted: readonly string[]) => {
    const page = await newPage(browser, { viewport, colorScheme });
    await page.goto(board.url);
    // The timelines need time to fill.
    await page.waitForTimeout(12_000);
    const taken: string[] = [];
    await everyView(page, async (shown) => {
      if (!wanted.includes(shown)) return;
      const name = viewport.width < 600 ? `phone-${shown}` : colorScheme === 'dark' ? `dark-${shown}` : shown;
      await page.screenshot({ path: join(FOLDER, `${name}.png`) });
      taken.push(shown);
    });
    expect(taken.toSorted()).toEqual([...wanted].toSorted());
    await page.close();
  },
);
