import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { ReadableStream } from 'node:stream/web';
import { beforeAll, expect, test } from '@jest/globals';
import type { Browser } from 'playwright-core';
import type { LabEvent } from '../../lab/lab-event.js';
import type { LabHello } from '../../lab/page-messages.js';
import { spansOf } from '../../lab/spans.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { until } from '../support/until.js';
import { launchChromium } from './chromium.js';
import { duplicates, open, PATIENCE, SCREENSHOTS, startLab } from './lab-page.js';

let browser: Browser;

beforeAll(async () => {
  browser = await launchChromium();
  cleanUpAfterTests(() => browser.close());
  await mkdir(SCREENSHOTS, { recursive: true });
}, 400_000);

/** Events that a newly opened page receives. */
async function eventsSoFar(url: string): Promise<readonly LabEvent[]> {
  const { body } = await fetch(`${url}/events`);
  const reader = (body as ReadableStream).pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  while (!/^data: .*\n\n/m.test(text)) text += (await reader.read()).value ?? '';
  await reader.cancel();
  const [, hello = ''] = /^data: (.*)$/m.exec(text) ?? [];
  return (JSON.parse(hello) as LabHello).records.at(-1)?.events ?? [];
}

/**
 * Returns `true` when the duplicates of dispatches without a lock are complete. A dispatch under the lock can still add
 * duplicates if it began before the last dispatch without a lock ended: both have read the same tasks.
 */
function unlockedIsOver(events: readonly LabEvent[]): boolean {
  const lockers = new Set(
    events
      .filter((event) => event.kind === 'skipped' || (event.kind === 'acquired' && event.locked !== false))
      .map(({ who }) => who),
  );
  const spans = spansOf(events);
  const lastUnlocked = Math.max(...spans.filter(({ locked }) => !locked).map(({ to = Infinity }) => to));
  return lockers.size === 3 && spans.every(({ from, to }) => to !== undefined || from > lastUnlocked);
}

test(
  'the playground shows duplicates without the lock, and no new duplicates under the lock when processes die',
  async () => {
    const { child, url, ended } = await startLab('--open');
    const { page, complaints } = await open(browser, url, 1_200);

    await page.selectOption('#scenario', { label: 'Playground' });
    await page.click('#run');
    await until(async () => (await page.isVisible('#duplicates')) && (await duplicates(page)) >= 6, PATIENCE);
    expect(await page.locator('#chart .duplicate').count()).toBeGreaterThan(0);
    await page.screenshot({ path: join(SCREENSHOTS, 'without-lock.png') });

    await page.click('#lock-on');
    await page.getByText('the lock is now: with-lock').waitFor();
    // A token in the chart shows that a holder of the lock pushes.
    await page.locator('#chart text', { hasText: /^#\d/ }).first().waitFor({ timeout: PATIENCE });
    await until(async () => unlockedIsOver(await eventsSoFar(url)), PATIENCE);
    // The page draws events four times a second, so its number of duplicates may be late.
    const before = (await eventsSoFar(url)).reduce((sum, event) => sum + (event.duplicates?.length ?? 0), 0);
    await until(async () => (await duplicates(page)) >= before, PATIENCE);
    await page.click('[aria-label="kill instance-1"]');
    await page.click('[aria-label="pause instance-2"]');
    await page.click('[aria-label="kill node-1"]');
    const pushes = page.locator('#steps li', { hasText: 'instance-3 pushes' });
    await until(async () => (await pushes.count()) > 2, PATIENCE);
    await page.click('[aria-label="resume instance-2"]');
    await page.click('[aria-label="start instance-1"]');
    await page.click('[aria-label="start node-1"]');
    await page.locator('[aria-label="kill instance-1"]').waitFor({ timeout: PATIENCE });
    await page.fill('input[name=work]', '100');
    await page.click('#apply');
    await page.getByText('and a job takes 100 ms').waitFor();
    expect(await duplicates(page)).toBe(before);
    await page.screenshot({ path: join(SCREENSHOTS, 'with-lock.png') });

    const foreign = await fetch(`${url}/control`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', origin: 'http://elsewhere.example' },
      body: JSON.stringify({ do: 'kill', instance: 'instance-1' }),
    });
    expect(foreign.status).toBe(403);

    await page.click('#stop');
    await page.locator('#run:not([disabled])').waitFor({ timeout: PATIENCE });
    expect(await page.textContent('#runs')).toContain('yes');
    expect(complaints).toEqual([]);
    await page.close();

    child.kill('SIGINT');
    await expect(ended).resolves.toEqual([0, null]);
  },
  4 * PATIENCE,
);

test(
  'the playground runs on PostgreSQL, and locks survive a kill and restart of PostgreSQL',
  async () => {
    const { url } = await startLab('--open', '--store', 'postgres');
    const { page, complaints } = await open(browser, url, 1_200);
    await page.locator('#store:not([disabled])').waitFor();
    expect(await page.inputValue('#store')).toBe('postgres');

    await page.selectOption('#scenario', '8');
    expect(await page.isDisabled('#store')).toBe(true);
    expect(await page.textContent('#store-note')).toContain('The scenarios run on Redis');
    await page.selectOption('#scenario', '0');
    await page.selectOption('#store', 'redis-3');
    expect(await page.textContent('#store-note')).toContain('Two of them must agree');
    await page.selectOption('#store', 'postgres');
    expect(await page.textContent('#store-note')).toContain('it still has its locks');

    await page.click('#run');
    await until(async () => (await page.isVisible('#duplicates')) && (await duplicates(page)) > 0, PATIENCE);
    await page.click('#lock-on');
    await page.locator('#chart text', { hasText: /^#\d/ }).first().waitFor({ timeout: PATIENCE });
    expect(await page.textContent('#plan')).toContain('locks in PostgreSQL');
    await page.click('[aria-label="pause PostgreSQL"]');
    await page.getByText('PostgreSQL is paused').waitFor();
    await page.click('[aria-label="resume PostgreSQL"]');
    await page.click('[aria-label="kill PostgreSQL"]');
    await page.click('[aria-label="start PostgreSQL"]', { timeout: PATIENCE });
    await page.getByText('PostgreSQL is back, with its locks').waitFor({ timeout: PATIENCE });
    const since = (await eventsSoFar(url)).length;
    await until(
      async () => (await eventsSoFar(url)).slice(since).some(({ kind }) => kind === 'pushed'),
      PATIENCE,
    );
    await page.screenshot({ path: join(SCREENSHOTS, 'postgres.png') });
    await page.setViewportSize({ width: 375, height: 800 });
    await until(async () => (await page.evaluate('document.documentElement.scrollWidth - innerWidth')) === 0);
    await page.screenshot({ path: join(SCREENSHOTS, 'postgres-phone.png'), fullPage: true });

    await page.click('#stop');
    await page.locator('#run:not([disabled])').waitFor({ timeout: PATIENCE });
    expect(await page.textContent('#runs')).toContain('(PostgreSQL)');
    expect(complaints).toEqual([]);
    await page.close();
  },
  4 * PATIENCE,
);
