import { mkdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { beforeAll, describe, expect, test } from '@jest/globals';
import type { CanActivate, ExecutionContext } from '@nestjs/common';
import type { Browser, Page } from 'playwright-core';
import { launchChromium } from '../lab/chromium.js';
import { CliProcess } from '../support/cli.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { startRedis, startRedisNodes } from '../support/redis-server.js';
import { startTcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { type BoardApp, startBoard, usePageFiles } from './board-app.js';
import { everyView, scene } from './scene.js';

const SCREENSHOTS = resolve('test-artefacts');
const AXE = createRequire(import.meta.url).resolve('axe-core/axe.min.js');

let browser: Browser;

beforeAll(async () => {
  await usePageFiles();
  browser = await launchChromium();
  cleanUpAfterTests(() => browser.close());
  await mkdir(SCREENSHOTS, { recursive: true });
}, 400_000);

interface Opened {
  readonly page: Page;
  /**
   * Problems in the page: errors, resources that the security policy of the page blocked, and requests to other
   * origins.
   */
  readonly complaints: string[];
}

interface View {
  readonly width?: number;
  readonly dark?: boolean;
  readonly user?: string;
}

async function open(url: string, { width = 1_280, dark = false, user }: View = {}): Promise<Opened> {
  const page = await browser.newPage({
    viewport: { width, height: 800 },
    colorScheme: dark ? 'dark' : 'light',
    ...(user !== undefined && { extraHTTPHeaders: { 'x-user': user } }),
  });
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => void (message.type() === 'error' && complaints.push(message.text())));
  page.on('request', (request) => {
    if (new URL(request.url()).origin !== new URL(url).origin && !request.url().startsWith('data:'))
      complaints.push(request.url());
  });
  await page.goto(url);
  return { page, complaints };
}

const lockButton = (page: Page, key: string) => page.getByRole('button', { name: key, exact: true });

test('the page shows a lock within a second of its acquisition, and later its release', async () => {
  const { locks, url } = await startBoard();
  const { page, complaints } = await open(url);
  await page.getByText('Live').waitFor();
  expect(await page.textContent('#count')).toBe('0');
  const took: number[] = [];
  for (let n = 1; n <= 5; n++) {
    const lock = await locks.acquire(`order:${n}`);
    const began = performance.now();
    await lockButton(page, `order:${n}`).waitFor();
    took.push(performance.now() - began);
    await lockButton(page, `order:${n}`).click();
    await lock.release();
    await page.getByText('Nobody holds this lock at present').waitFor();
  }
  // A busy machine delays some rows. The shortest of these times shows how fast the page can show a row.
  expect(Math.min(...took)).toBeLessThan(1_000);
  expect(complaints).toEqual([]);
  await page.close();
});

test('the page shows a dead node as unreachable, and keeps showing locks when too few nodes answer', async () => {
  const servers = await startRedisNodes(3);
  const { locks, url } = await startBoard(undefined, {
    locks: { nodes: servers.map((server) => server.url), restartGuard: false },
  });
  const { page, complaints } = await open(url);
  await locks.acquire('order:1');
  await lockButton(page, 'order:1').waitFor();
  await page.getByText('3 of 3 nodes vote').waitFor();
  await servers[0]!.stop();
  await page.getByText('2 of 3 nodes vote').waitFor();
  await locks.acquire('order:2');
  await lockButton(page, 'order:2').waitFor();
  await page.getByRole('link', { name: 'nodes' }).click();
  await page.getByText('unreachable').waitFor();
  await servers[1]!.stop();
  await page.getByRole('alert').getByText('The locks cannot be read').waitFor();
  await page.getByRole('link', { name: 'locks' }).click();
  await lockButton(page, 'order:1').waitFor();
  expect(complaints).toEqual([]);
  await page.close();
});

test('the page shows which nodes do not vote yet, and when they will vote', async () => {
  const servers = await startRedisNodes(3);
  const { url } = await startBoard(undefined, { locks: { nodes: servers.map((server) => server.url) } });
  const { page, complaints } = await open(url);
  await page.getByText('0 of 3 nodes vote').waitFor();
  await page.getByRole('alert').getByText('Fewer than 2 nodes vote: nothing can be locked').waitFor();
  await page.getByRole('link', { name: 'nodes' }).click();
  const node = page.getByRole('row').filter({ hasText: String(servers[0]!.port) });
  await node.getByText('guarded', { exact: true }).waitFor();
  expect(await node.textContent()).toMatch(/guarded votes in [\d.]+ s/);
  expect(await node.textContent()).toContain('started or lost its data a short while ago');
  expect(complaints).toEqual([]);
  await page.close();
});

describe('the list of the page', () => {
  let page: Page;
  const rows = async (): Promise<string[]> => page.locator('.rows .row .key').allTextContents();
  /** The page applies a filter a moment after the selection. */
  const settled = (keys: readonly string[]): Promise<void> =>
    until(async () => JSON.stringify(await rows()) === JSON.stringify(keys));

  beforeAll(async () => {
    const servers = await startRedisNodes(3);
    const nodes = servers.map((server) => server.url);
    const startAs = (owner: string, some: string[]): Promise<BoardApp> =>
      startBoard(undefined, { locks: { nodes: some, restartGuard: false, owner } });
    const [mine, others, lone] = await Promise.all([
      startAs('api:1', nodes),
      startAs('jobs:1', nodes),
      startAs('lone:1', nodes.slice(0, 1)),
    ]);
    const long = { ttl: 600_000, renew: false } as const;
    await mine.locks.acquire('mine', long);
    await others.locks.acquire('waited', long);
    await others.locks.acquire('shared', { ...long, mode: 'shared' });
    await others.locks.acquire('permits', { ...long, permits: 2 });
    await others.locks.acquire('endless', long);
    for (const server of servers) await server.client().persist('lock:{endless}');
    await lone.locks.acquire('minority', long);
    mine.locks.acquire('waited', { retry: { timeout: 600_000 } }).catch(() => undefined);
    ({ page } = await open(mine.url));
    await page.getByText('1 waiting').waitFor();
  }, 120_000);

  test.each([
    ['all', ['endless', 'mine', 'minority', 'permits', 'shared', 'waited']],
    ['waited for', ['waited']],
    ['shared', ['shared']],
    ['with permits', ['permits']],
    ['of this process', ['mine', 'waited']],
    ['without an expiry', ['endless']],
    ['without a quorum', ['minority']],
  ])('the page filters its list of locks by the state "%s"', async (state, keys) => {
    await page.getByLabel('State').selectOption({ label: state });
    await settled(keys);
    expect(await rows()).toEqual(keys);
  });

  test.each([
    ['a holder or a waiter, in upper or lower case', 'API', ['mine', 'waited']],
    ['a part of the name', 'bs:1', ['endless', 'permits', 'shared', 'waited']],
    ['an unknown name', 'elsewhere', []],
  ])('the page filters its list of locks by owner: %s', async (_, owner, keys) => {
    await page.getByLabel('State').selectOption({ label: 'all' });
    await page.getByRole('textbox', { name: 'Owner' }).fill(owner);
    await settled(keys);
    expect(await rows()).toEqual(keys);
    await page.getByRole('textbox', { name: 'Owner' }).fill('');
  });

  test('the page filters its list of locks by owner and state together', async () => {
    await page.getByRole('textbox', { name: 'Owner' }).fill('jobs');
    await page.getByLabel('State').selectOption({ label: 'shared' });
    await page.getByText('1 match', { exact: true }).waitFor();
    expect(await rows()).toEqual(['shared']);
  });
});

test('the page says that there are more locks than the 20,000 that it shows', async () => {
  const { locks, url } = await startBoard();
  await Promise.all(
    Array.from({ length: 20_001 }, (_, index) => locks.acquire(`order:${index}`, { ttl: 600_000 })),
  );
  const { page, complaints } = await open(url);
  await page.getByText('more than 20000 locks').first().waitFor();
  await page.getByText('This page shows and searches only these.').waitFor();
  expect(complaints).toEqual([]);
  await page.close();
}, 600_000);

test('a forced release ends all 501 holders, although one request names at most 500', async () => {
  const { locks, url } = await startBoard({ public: true, allowForceRelease: true });
  const { page, complaints } = await open(url);
  const held = await Promise.all(
    Array.from({ length: 501 }, () => locks.acquire('catalog', { mode: 'shared', ttl: 600_000 })),
  );
  await lockButton(page, 'catalog').click();
  await page.getByText('501 holders').waitFor();
  await page.getByRole('button', { name: 'Release all…' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Release 501 holders' }).click();
  await page.getByText('Released 501 of 501 holders.').waitFor();
  expect(held.filter((lock) => lock.isHeld())).toEqual([]);
  expect(complaints).toEqual([]);
  await page.close();
});

test('a forced release asks for confirmation and names the holder', async () => {
  const { locks, url } = await startBoard({ public: true, allowForceRelease: true });
  const { page, complaints } = await open(url);
  const lock = await locks.acquire('order:1');
  await lockButton(page, 'order:1').click();
  await page.getByRole('button', { name: 'Release…' }).click();
  const dialog = page.getByRole('dialog');
  const { owner = '' } = await locks.inspect('order:1');
  await expect(dialog.textContent()).resolves.toContain(owner);
  await dialog.getByRole('button', { name: 'Leave it' }).click();
  await dialog.waitFor({ state: 'hidden' });
  expect(lock.isHeld()).toBe(true);
  await page.getByRole('button', { name: 'Release…' }).click();
  await dialog.getByRole('button', { name: 'Release it' }).click();
  await page.getByText('Released. Its holder notices the loss').waitFor();
  expect(lock.isHeld()).toBe(false);
  expect(complaints).toEqual([]);
  await page.close();
});

test('the page has a release button only if releases are allowed', async () => {
  const { locks, url } = await startBoard();
  const { page } = await open(url);
  await locks.acquire('order:1');
  await lockButton(page, 'order:1').click();
  await page.getByRole('button', { name: 'Copy the command' }).waitFor();
  expect(await page.getByRole('button', { name: /Release/ }).count()).toBe(0);
  await page.close();
});

test('a viewer whom the guard rejects gets no page, and cannot release a lock from an open page', async () => {
  const users = new Set(['ann']);
  class AdminGuard implements CanActivate {
    canActivate(context: ExecutionContext): boolean {
      const { headers } = context.switchToHttp().getRequest<{ headers: Record<string, string> }>();
      return users.has(headers['x-user'] ?? '');
    }
  }
  const { locks, url } = await startBoard({ guards: [AdminGuard], allowForceRelease: true });
  const stranger = await browser.newPage();
  expect((await stranger.goto(url))?.status()).toBe(403);
  const { page } = await open(url, { user: 'ann' });
  const lock = await locks.acquire('order:1');
  await lockButton(page, 'order:1').click();
  await page.getByRole('button', { name: 'Release…' }).click();
  users.delete('ann');
  await page.getByRole('dialog').getByRole('button', { name: 'Release it' }).click();
  await page.getByRole('alert').getByText('Forbidden').waitFor();
  expect(lock.isHeld()).toBe(true);
  await Promise.all([page.close(), stranger.close()]);
});

test('the page renders fewer than 60 rows for 10,000 locks, and its search finds a single lock among them', async () => {
  const { locks, url } = await startBoard();
  await Promise.all(
    Array.from({ length: 10_000 }, (_, index) =>
      locks.acquire(`order:${String(index).padStart(5, '0')}`, { ttl: 600_000 }),
    ),
  );
  const { page, complaints } = await open(url);
  await page.getByText('10000 locks').waitFor();
  expect(await page.locator('.rows .row').count()).toBeLessThan(60);
  const began = performance.now();
  await page.fill('input[name=search]', 'order:07777');
  await page.getByText('1 match', { exact: true }).waitFor();
  await lockButton(page, 'order:07777').waitFor();
  // The test log shows this time to its readers. An assertion on the time would fail on a busy machine.
  process.stdout.write(`one of 10,000 locks found in ${Math.round(performance.now() - began)} ms\n`);
  await page.fill('input[name=search]', '');
  await page.locator('.rows').evaluate((element) => element.scrollTo(0, element.scrollHeight));
  await lockButton(page, 'order:09999').waitFor();
  await page.screenshot({ path: join(SCREENSHOTS, 'board-10000.png') });
  expect(complaints).toEqual([]);
  await page.close();
}, 600_000);

test('after an interruption of its event stream, the page shows the locks acquired before and during the interruption', async () => {
  const { locks, url } = await startBoard();
  const proxy = await startTcpProxy({ port: Number(new URL(url).port) });
  const { page } = await open(`http://127.0.0.1:${proxy.port}/locks`);
  await locks.acquire('order:1');
  await lockButton(page, 'order:1').waitFor();
  proxy.refuse();
  proxy.cut();
  await page.getByText('Connection lost').waitFor();
  await locks.acquire('order:2');
  await proxy.accept();
  await page.getByText('Live').waitFor();
  await lockButton(page, 'order:2').waitFor();
  expect(await lockButton(page, 'order:1').isVisible()).toBe(true);
  await page.close();
});

describe('the page with unusual keys', () => {
  const owner = '<b>bold</b>\u202Egnihton';
  let board: BoardApp;

  beforeAll(async () => {
    board = await startBoard(undefined, { locks: { nodes: 'memory', owner } });
  });

  test.each([
    ['markup', '<img src=x onerror="document.title=1"><script>document.title=2</script>', undefined],
    ['a newline', 'order\n1', 'order\\u000a1'],
    ['bidirectional text', 'order:\u202Ednufer', 'order:\\u202ednufer'],
    ['characters without width', 'order\u200B:1\u0000', 'order\\u200b:1\\u0000'],
    ['Arabic', 'طلب:1', undefined],
  ])(
    'the page shows a key and its owner as plain text when the key contains %s',
    async (_, key, shown = key) => {
      const { page, complaints } = await open(board.url);
      const lock = await board.locks.acquire(key);
      const row = page.locator('.rows .row');
      // The page may still show the lock of the previous test.
      await until(async () => (await row.locator('.key').allTextContents()).join() === shown);
      expect(await row.locator('.owner').textContent()).toContain('<b>bold</b>\\u202egnihton');
      await row.getByRole('button').click();
      await until(async () => (await page.locator('.details h2').textContent()) === shown);
      expect(await page.title()).toBe('Locks');
      expect(complaints).toEqual([]);
      await lock.release();
      await page.close();
    },
  );

  test('the page shortens a key of 2,000 characters, and shows it in full on request', async () => {
    const { page, complaints } = await open(board.url, { width: 375 });
    const key = `long:${'x'.repeat(1_995)}`;
    const lock = await board.locks.acquire(key);
    // The page may still show the lock of the previous test.
    await until(async () => /^long:x+/.test((await page.locator('.rows .key').allTextContents()).join()));
    await page.locator('.rows .row button').click();
    await page.getByRole('button', { name: 'Show all 2000 characters' }).click();
    expect(await page.locator('.details h2').textContent()).toBe(key);
    const overflow = await page.evaluate('document.documentElement.scrollWidth - innerWidth');
    expect(overflow).toBeLessThanOrEqual(0);
    expect(complaints).toEqual([]);
    await lock.release();
    await page.close();
  });
});

describe('the page', () => {
  let board: BoardApp;

  beforeAll(async () => {
    board = await scene();
  });

  test.each([
    ['light', { dark: false }],
    ['dark', { dark: true }],
    ['on a phone', { width: 375 }],
    ['on a phone, dark', { width: 375, dark: true }],
  ])(
    'the page has no horizontal overflow, and axe finds no accessibility problem: %s',
    async (name, view) => {
      const { page, complaints } = await open(board.url, view);
      const found: unknown[] = [];
      await everyView(page, async (shown) => {
        await page.screenshot({
          path: join(SCREENSHOTS, `board-${name.replaceAll(/\W+/g, '-')}-${shown}.png`),
        });
        // The security policy of the page does not apply to a script that the debugger evaluates.
        await page.evaluate(await readFile(AXE, 'utf8'));
        const { violations } = (await page.evaluate('axe.run()')) as {
          violations: { id: string; help: string; nodes: { html: string; failureSummary: string }[] }[];
        };
        for (const { id, nodes } of violations)
          found.push({ shown, id, nodes: nodes.map(({ html, failureSummary }) => [html, failureSummary]) });
        const overflow = await page.evaluate('document.documentElement.scrollWidth - innerWidth');
        if (Number(overflow) > 0) found.push({ shown, overflow });
      });
      expect(found).toEqual([]);
      expect(complaints).toEqual([]);
      await page.close();
    },
  );

  test('arrow keys move in the list, Enter opens a lock, and Escape closes it and restores the focus', async () => {
    const { page } = await open(board.url);
    const buttons = page.locator('.rows .row button');
    // The search hides the locks that come and go, so that the rows stay the same.
    await page.fill('input[name=search]', 'order:');
    await until(async () => (await buttons.count()) === 3);
    await buttons.first().focus();
    await page.keyboard.press('ArrowDown');
    const second = (await buttons.nth(1).textContent()) ?? '';
    await until(async () => (await page.evaluate('document.activeElement.textContent')) === second);
    await page.keyboard.press('Enter');
    await page.locator('.details').waitFor();
    await until(async () => (await page.evaluate('document.activeElement.tagName')) === 'H2');
    await page.keyboard.press('Escape');
    await page.locator('.details').waitFor({ state: 'detached' });
    await until(async () => (await page.evaluate('document.activeElement.textContent')) === second);
    expect(second).not.toBe('');
    await page.close();
  });
});

test('the `board` command serves the same page as the module, on the loopback interface', async () => {
  const redis = await startRedis();
  const cli = new CliProcess(['board', '--node', redis.url, '--allow-release']);
  await cli.says(/Board: http/);
  const [, url = ''] = /Board: (\S+)/.exec(cli.stdout) ?? [];
  const { page, complaints } = await open(url);
  await page.getByRole('link', { name: 'declared' }).click();
  await page.getByText('This command does not know the declared locks.').waitFor();
  await page.getByRole('link', { name: 'locks' }).click();
  const { locks } = await startBoard(undefined, { locks: { nodes: redis.url, owner: 'api:1' } });
  const lock = await locks.acquire('order:1');
  await lockButton(page, 'order:1').click();
  await page.getByRole('button', { name: 'Release…' }).click();
  await page.getByRole('dialog').getByText('api:1').waitFor();
  await page.getByRole('button', { name: 'Release it' }).click();
  await page.getByText('Released.').waitFor();
  expect(await locks.inspect('order:1')).toMatchObject({ held: false });
  await lock.release();
  expect(complaints).toEqual([]);
  cli.signal('SIGINT');
  await expect(cli.ended).resolves.toMatchObject({ code: 0 });
  await page.getByText('Connection lost').waitFor();
  await page.close();
});
