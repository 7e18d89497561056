import { beforeAll, expect, test } from '@jest/globals';
import { problemsOf } from './accessibility.js';
import { type BoardApp, usePageFiles } from './board-app.js';
import { BoardTab } from './board-tab.js';
import { scene } from './scene.js';

// The other combinations of a width and a colour scheme; `board.browser.ts` has the first two.

let tab: BoardTab;
let board: BoardApp;

beforeAll(async () => {
  await usePageFiles();
  [tab, board] = await Promise.all([BoardTab.start(), scene()]);
}, 400_000);

test.each([
  ['dark', { dark: true }],
  ['on a phone', { width: 375 }],
  ['on a tablet', { width: 768 }],
])('the page has no horizontal overflow, and axe finds no accessibility problem: %s', async (name, view) => {
  const { page, complaints } = await tab.open(board.url, view);
  expect(await problemsOf(page, name)).toEqual([]);
  expect(complaints).toEqual([]);
});
