import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { mkdir, readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join, posix, resolve } from 'node:path';
import { beforeAll, describe, expect, test } from '@jest/globals';
import type { Browser, Page } from 'playwright-core';
import { runCommand } from '../consumers/run-command.js';
import { launchChromium } from '../lab/chromium.js';
import { cleanUpAfterTests } from '../support/leftovers.js';

const ROOT = resolve(import.meta.dirname, '../..');
const SITE = join(ROOT, 'dist/site');
/** Folder of screenshots for people to look at. No test compares them. */
const SCREENSHOTS = resolve('test-artefacts/site');

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.json': 'application/json',
};

let browser: Browser;
let origin: string;

beforeAll(async () => {
  await runCommand('npm', ['run', '-s', 'docs:site'], { cwd: ROOT });
  browser = await launchChromium();
  cleanUpAfterTests(() => browser.close());
  origin = await serveSite();
  await mkdir(SCREENSHOTS, { recursive: true });
}, 600_000);

/** Serves the files of the site as a static host does; resolves to the origin. */
async function serveSite(): Promise<string> {
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? '/', 'http://site');
    const file = join(SITE, pathname.endsWith('/') ? `${pathname}index.html` : pathname);
    readFile(file).then(
      (content) =>
        response.setHeader('content-type', TYPES[extname(file)] ?? 'application/octet-stream').end(content),
      () => response.writeHead(404).end(),
    );
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  cleanUpAfterTests(() => new Promise((closed) => server.close(() => closed())));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const builtPages = (): string[] =>
  readdirSync(SITE, { recursive: true, encoding: 'utf8' }).filter(
    (name) => name.endsWith('.html') && name !== '404.html',
  );

interface View {
  readonly width?: number;
  readonly dark?: boolean;
}

async function openPage({ width = 1_400, dark = false }: View = {}): Promise<{
  page: Page;
  complaints: string[];
}> {
  const page = await browser.newPage({
    viewport: { width, height: 900 },
    colorScheme: dark ? 'dark' : 'light',
  });
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(`${page.url()}: ${error.message}`));
  page.on('console', (message) => {
    if (message.type() === 'error') complaints.push(`${page.url()}: ${message.text()}`);
  });
  page.on('request', (request) => {
    const url = request.url();
    if (!url.startsWith(origin) && !url.startsWith('data:')) complaints.push(`${page.url()} loads ${url}`);
  });
  return { page, complaints };
}

test('the site has a page for every page of docs/, every example and every entry point', () => {
  const names = readdirSync(join(ROOT, 'docs')).filter((name) => name.endsWith('.md'));
  expect(names.length).toBeGreaterThan(20);
  const { exports } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
    readonly exports: Readonly<Record<string, unknown>>;
  };
  const entries = Object.keys(exports).filter((entry) => entry !== './package.json');
  expect(builtPages()).toEqual(
    expect.arrayContaining([
      'index.html',
      'contents.html',
      ...names.filter((name) => name !== 'README.md').map((name) => name.replace(/\.md$/, '.html')),
      ...readdirSync(join(ROOT, 'examples')).map((name) => `examples/${name}.html`),
      ...entries.map((entry) => `api/${posix.join('nestjs-redlock', entry).replaceAll('/', '.')}.html`),
    ]),
  );
});

test('each page of the site has its own title and description', () => {
  const heads = builtPages().map((name) => {
    const html = readFileSync(join(SITE, name), 'utf8');
    const title = /<title>(.*?)<\/title>/.exec(html)?.[1] ?? '';
    const description = /<meta name="description" content="(.*?)">/.exec(html)?.[1] ?? '';
    return { name, title, description };
  });
  expect(heads.filter(({ title, description }) => title.length < 10 || description.length < 20)).toEqual([]);
  for (const part of ['title', 'description'] as const)
    expect(new Set(heads.map((head) => head[part])).size).toBe(heads.length);
});

const idsOf = (html: string): Set<string> =>
  new Set([...html.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id ?? ''));

/** Returns the links of a page to pages, headings and files that the site does not have. */
function deadLinks(page: string, html: string): string[] {
  const targets = [...html.matchAll(/<a [^>]*href="([^"]+)"/g)].map(([, href]) => href ?? '');
  return [...new Set(targets)].filter((href) => {
    if (/^[a-z]+:/.test(href)) return false;
    const { pathname, hash } = new URL(href, `http://site/${page}`);
    const file = join(SITE, pathname.endsWith('/') ? `${pathname}index.html` : pathname);
    if (!existsSync(file)) return true;
    if (hash === '' || !file.endsWith('.html')) return false;
    const target = pathname === `/${page}` ? html : readFileSync(file, 'utf8');
    return !idsOf(target).has(decodeURIComponent(hash.slice(1)));
  });
}

describe('the check of links', () => {
  test('the check of links finds no dead link on any page, including links to headings', () => {
    const dead = builtPages().flatMap((page) =>
      deadLinks(page, readFileSync(join(SITE, page), 'utf8')).map((href) => `${page}: ${href}`),
    );
    expect(dead).toEqual([]);
  });

  test('the check of links finds a link to a missing heading and a link to a missing page', () => {
    const html =
      '<a class="a" href="/errors.html#lock_held"></a><a href="/errors.html#lock_hold"></a><a href="x.html"></a>';
    expect(deadLinks('cron.html', html)).toEqual(['/errors.html#lock_hold', 'x.html']);
  });
});

test('the search of the site finds an error code', async () => {
  const { page, complaints } = await openPage();
  await page.goto(`${origin}/`);
  await page.getByRole('button', { name: 'Search' }).click();
  await page.getByRole('searchbox').fill('LOCK_HELD');
  await page.locator('.results a[href$="/errors.html#lock_held"]').waitFor();
  await page.screenshot({ path: join(SCREENSHOTS, 'search.png') });
  await page.locator('.results a[href$="/errors.html#lock_held"]').click();
  await page.getByRole('heading', { name: 'LOCK_HELD' }).waitFor();
  expect(complaints).toEqual([]);
  await page.close();
});

/** Pages with examples, tables, pictures and links. */
const PICTURED = ['index.html', 'errors.html', 'board.html', 'contents.html'];

test.each([
  { width: 390, dark: false },
  { width: 1_400, dark: true },
])('each page fits a screen of $width px and loads without an error (dark: $dark)', async (view) => {
  const { page, complaints } = await openPage(view);
  const tooWide: string[] = [];
  for (const name of builtPages()) {
    await page.goto(`${origin}/${name}`);
    const excess = await page.evaluate<number>(
      'document.documentElement.scrollWidth - document.documentElement.clientWidth',
    );
    if (excess > 0) tooWide.push(`${name}: ${excess} px`);
    if (PICTURED.includes(name)) {
      const picture = `${name}-${view.width}-${view.dark ? 'dark' : 'light'}.png`;
      await page.screenshot({ path: join(SCREENSHOTS, picture) });
    }
  }
  expect(tooWide).toEqual([]);
  expect(complaints).toEqual([]);
  await page.close();
});
