import { readFile } from 'node:fs/promises';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { expect, test } from '@jest/globals';
import { runCommand } from './consumers/run-command.js';

const root = resolve(import.meta.dirname, '..');
const inDocs = readdirSync(join(root, 'docs')).filter((name) => name.endsWith('.md'));
const pages = [
  ...readdirSync(root).filter((name) => name.endsWith('.md')),
  ...inDocs.map((name) => `docs/${name}`),
  ...readdirSync(join(root, 'examples')).map((name) => `examples/${name}/README.md`),
  'bench/README.md',
].map((name) => join(root, name));

const textOf = (page: string): string => readFileSync(page, 'utf8').replaceAll(/^```.*?^```$/gms, '');

/** Returns the names that GitHub gives to the headings of a page. */
function anchorsOf(page: string): string[] {
  const seen = new Map<string, number>();
  return [...textOf(page).matchAll(/^#+ (.*)$/gm)].map(([, heading]) => {
    const name = (heading ?? '')
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N}_ -]/gu, '')
      .replaceAll(' ', '-');
    const count = seen.get(name) ?? 0;
    seen.set(name, count + 1);
    return count === 0 ? name : `${name}-${count}`;
  });
}

/** Returns the targets of the links that are paths or anchors, not URLs. */
function relativeLinks(text: string): string[] {
  const targets = [...text.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target]) => target ?? '');
  return targets.filter((target) => !/^[a-z]+:/.test(target));
}

/** Returns the links of a page to files and headings that are missing in this repository. */
function brokenLinks(page: string, text = textOf(page)): string[] {
  return relativeLinks(text)
    .filter((target) => {
      const [path = '', anchor] = target.split('#');
      const file = path === '' ? page : join(dirname(page), path);
      return !existsSync(file) || (anchor !== undefined && !anchorsOf(file).includes(anchor));
    })
    .map((target) => `${relative(root, page)}: ${target}`);
}

test('every link between pages leads to a file and a heading that exist', () => {
  expect(pages.length).toBeGreaterThan(10);
  expect(pages.flatMap((page) => brokenLinks(page))).toEqual([]);
});

test('the check of links finds a link to a missing file or heading', () => {
  const text = '[a](errors.md#lock_held) [b](errors.md#lock_hold) [c](errata.md) [d](#lock_held)';
  expect(brokenLinks(join(root, 'docs/errors.md'), text)).toEqual([
    'docs/errors.md: errors.md#lock_hold',
    'docs/errors.md: errata.md',
  ]);
});

/** Returns the links of a page of the package to files that `npm publish` does not upload. */
function unpackedLinks(page: string, packed: ReadonlySet<string>, text = textOf(join(root, page))): string[] {
  return relativeLinks(text)
    .filter((target) => !target.startsWith('#'))
    .map((target) => join(dirname(page), target.replace(/#.*/, '')))
    .filter((file) => !packed.has(file))
    .map((file) => `${page}: ${file}`);
}

test('every link of a page in the package leads to a file of the package', async () => {
  const packed = await packedFiles();
  const inPackage = [...packed].filter((file) => file.endsWith('.md'));
  expect(inPackage).toEqual(expect.arrayContaining(['README.md', ...inDocs.map((name) => `docs/${name}`)]));
  expect(inPackage.flatMap((page) => unpackedLinks(page, packed))).toEqual([]);
});

test('the check of links finds a link to a file outside of the package', async () => {
  const text = '[a](#lock_held) [b](errors.md#lock_held) [c](../CONTRIBUTING.md) [d](https://redis.io)';
  expect(unpackedLinks('docs/errors.md', await packedFiles(), text)).toEqual([
    'docs/errors.md: CONTRIBUTING.md',
  ]);
});

let packing: Promise<ReadonlySet<string>> | undefined;

/** Returns the paths that `npm publish` uploads. Without a build, the built files are missing. */
function packedFiles(): Promise<ReadonlySet<string>> {
  return (packing ??= pack());
}

async function pack(): Promise<ReadonlySet<string>> {
  const output = await runCommand('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], { cwd: root });
  const [packed] = Object.values(JSON.parse(output) as Record<string, { files: { path: string }[] }>);
  return new Set(packed?.files.map(({ path }) => path));
}

test('docs/README.md, the index, lists every page once', () => {
  const index = textOf(join(root, 'docs/README.md'));
  const listed = [...index.matchAll(/^- \[[^\]]+\]\(([^)#]+)\)/gm)].map(([, page]) => page ?? '');
  const others = inDocs.filter((name) => name !== 'README.md');
  expect(listed.toSorted()).toEqual(others.toSorted());
});

test('docs/safety.md cites each listed source, and no unlisted source', () => {
  const [text = '', sources = ''] = textOf(join(root, 'docs/safety.md')).split('## Sources');
  const listed = [...sources.matchAll(/^(\d+)\. /gm)].map(([, number]) => number);
  const cited = new Set([...text.matchAll(/\[(\d+)\](?!\()/g)].map(([, number]) => number));
  expect(listed.length).toBeGreaterThan(3);
  expect([...cited].toSorted()).toEqual(listed);
});

/** Promises that are true only under a condition. */
const PROMISES =
  /once per tick|not run again|two runs begin at least|however many instances|in whichever process|at most one holder|beside (its|a) holder|larger (than the token of every|for every later)|independent masters (do|keep)/i;

const CONDITIONS = /as long as|provided|unless|while|condition/i;

/** Returns the sentences of a text that promise something without a condition in them or in the next sentence. */
function barePromises(text: string): string[] {
  // Each cell of a table counts as a paragraph, and so does each comment of an example. A promise and its condition
  // must be in the same cell or comment.
  const paragraphs = text.split(/\n\s*(?:\n|\/\/|\/\*|- )|\|/);
  return paragraphs.flatMap((paragraph) => {
    const sentences = paragraph.replaceAll(/\s+/g, ' ').split(/(?<=[.!?:])\W*\s/);
    return sentences.filter(
      (sentence, index) =>
        PROMISES.test(sentence) && !CONDITIONS.test(`${sentence} ${sentences[index + 1] ?? ''}`),
    );
  });
}

test('each promise in the documentation has its condition in the same or the next sentence', () => {
  // docs/README.md is left out, because it only names the subjects of the pages.
  const texts = pages.filter((page) => page !== join(root, 'docs/README.md'));
  const sources = readdirSync(join(root, 'lib'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => join(root, 'lib', name));
  const bare = [...texts, ...sources].flatMap((file) =>
    barePromises(readFileSync(file, 'utf8').replaceAll(/^ *\* ?/gm, '')).map(
      (sentence) => `${relative(root, file)}: ${sentence}`,
    ),
  );
  expect(bare).toEqual([]);
});

test('the check of promises finds a promise without its condition', () => {
  const text =
    'It runs once per tick. That is all.\n\nAt most one holder, as long as data lasts. | once per tick | on conditions';
  expect(barePromises(text)).toEqual(['It runs once per tick.', ' once per tick ']);
});

test('docs/errors.md has a section for every error code', () => {
  const source = readFileSync(join(root, 'lib/core/errors.ts'), 'utf8');
  const union = /export type RedlockErrorCode =(.*?);/s.exec(source)?.[1] ?? '';
  const codes = [...union.matchAll(/'(\w+)'/g)].map(([, code]) => (code ?? '').toLowerCase());
  expect(codes.length).toBeGreaterThan(4);
  expect(anchorsOf(join(root, 'docs/errors.md'))).toEqual(expect.arrayContaining(codes));
});

test('docs/README.md lists the versions in package.json, and a test application installs each version', async () => {
  const table = new Map(
    [...textOf(join(root, 'docs/README.md')).matchAll(/^\| `?([\w@/-]+)`? +\| ([^|]+?) +\|/gm)].map(
      ([, what, versions]) => [what, versions],
    ),
  );
  const { engines, peerDependencies: peers, devDependencies: ours } = await packageOf('.');
  const majors = (range: string | undefined): string =>
    (range ?? '').replaceAll(/\^(\d+)[.\d]*/g, '$1').replaceAll(' ||', ',');
  const oldest = (range: string | undefined): string =>
    (range ?? '')
      .replaceAll(/\^(\d+)\.0\.0/g, '$1')
      .replaceAll(/\^(\d+\.\d+)\.0/g, '$1 and later')
      .replaceAll(' ||', ',');
  expect(table.get('Node')).toBe(`${engines?.['node']?.replace('>=', '')} and later`);
  expect(table.get('NestJS')).toBe(majors(peers?.['@nestjs/common']));
  expect(table.get('NestJS')).toBe(majors(peers?.['@nestjs/core']));
  expect(table.get('ioredis')).toBe(oldest(peers?.['ioredis']));
  expect(table.get('@nestjs/terminus')).toBe(majors(peers?.['@nestjs/terminus']));
  expect(table.get('pg')).toBe(oldest(peers?.['pg']));
  expect(table.get('mysql2')).toBe(oldest(peers?.['mysql2']));
  expect(table.get('cron')).toBe(majors(peers?.['cron']));
  expect(table.get('RxJS')).toBe(oldest(peers?.['rxjs']));

  const apps = await Promise.all(
    ['nest-11-cjs', 'nest-12-esm'].map((app) => packageOf(`test/consumers/${app}`)),
  );
  const installed = (name: string): string =>
    apps.map(({ dependencies }) => majors(dependencies?.[name])).join(', ');
  expect(installed('@nestjs/common')).toBe(table.get('NestJS'));
  expect(installed('ioredis')).toBe(majors(peers?.['ioredis']));
  const on11 = apps[0]?.dependencies ?? {};
  const major = (range: string | undefined): string => majors(range?.replace(/^npm:.*@/, ''));
  for (const [name, versions] of [
    ['@nestjs/schedule', [on11['schedule-5'], on11['@nestjs/schedule'], ours?.['@nestjs/schedule']]],
    ['@nestjs/terminus', [on11['@nestjs/terminus'], ours?.['@nestjs/terminus']]],
  ] as const) {
    expect(versions.map(major).join(', ')).toBe(table.get(name));
  }
});

type Versions = Readonly<Record<string, string>>;

interface Package {
  readonly engines?: Versions;
  readonly peerDependencies?: Versions;
  readonly dependencies?: Versions;
  readonly devDependencies?: Versions;
}

async function packageOf(folder: string): Promise<Package> {
  return JSON.parse(await readFile(join(root, folder, 'package.json'), 'utf8')) as object;
}
