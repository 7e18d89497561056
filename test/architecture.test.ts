import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, posix, resolve } from 'node:path';
import { beforeAll, describe, expect, test } from '@jest/globals';
import { cleanUpAfterTests } from './support/leftovers.js';

// The configuration of the linter states which folders may import which others. A pattern that matches nothing reports
// nothing, as if all code kept the rule. These tests therefore make files that break the rule, and check that the
// linter refuses them.

/** Folders and packages that each folder of `lib` may import, beside its own files and the modules of Node. */
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  core: [],
  redlock: ['core'],
  'stores/memory': ['core'],
  'stores/redis': ['core', 'ioredis'],
  'stores/postgres': ['core', 'pg'],
  postgres: ['core', 'stores/postgres'],
  store: ['core'],
  'stores/etcd': ['core'],
  etcd: ['core', 'stores/etcd'],
  telemetry: ['core', 'redlock'],
  service: ['core', 'redlock', 'telemetry', '@nestjs/common', '@nestjs/core', 'reflect-metadata'],
  decorator: [
    ...['core', 'service', 'telemetry'],
    ...['@nestjs/common', '@nestjs/core', 'reflect-metadata', 'rxjs'],
  ],
  module: [
    ...['core', 'decorator', 'redlock', 'service', 'stores/memory', 'stores/redis', 'telemetry'],
    ...['@nestjs/common', '@nestjs/core', 'ioredis', 'reflect-metadata'],
  ],
  http: ['core', '@nestjs/common', '@nestjs/core', 'rxjs'],
  health: ['core', 'service', '@nestjs/common', '@nestjs/core', '@nestjs/terminus'],
  metrics: ['core', 'telemetry', 'prom-client'],
  tracing: ['core', 'telemetry', '@opentelemetry/api'],
  live: ['core', 'telemetry'],
  board: ['core', 'live', 'service', '@nestjs/common', '@nestjs/core'],
  fencing: ['core'],
  testing: ['core', 'module', 'service', 'stores/memory', 'telemetry', '@nestjs/common'],
  cli: [
    'core',
    'etcd',
    'live',
    'postgres',
    'redlock',
    'stores/etcd',
    'stores/postgres',
    'stores/redis',
    'ioredis',
  ],
  // This is the file `lib/index.ts`. It does not load the folders that have an entry point of their own.
  '.': ['core', 'decorator', 'http', 'module', 'redlock', 'service', 'telemetry'],
};

const NODE = ['node:crypto', 'node:timers/promises'];

const PACKAGES = [
  ...Object.keys(
    (JSON.parse(readFileSync('package.json', 'utf8')) as { peerDependencies: object }).peerDependencies,
  ),
  ...['@nestjs/testing', '@opentelemetry/instrumentation'],
];

interface Finding {
  readonly filename: string;
  readonly code: string;
  readonly message: string;
}

async function lint(files: Readonly<Record<string, string>>): Promise<readonly Finding[]> {
  const folder = await mkdtemp(join(tmpdir(), 'architecture-'));
  cleanUpAfterTests(() => rm(folder, { recursive: true, force: true }));
  await cp('.oxlintrc.json', join(folder, '.oxlintrc.json'));
  for (const [path, source] of Object.entries(files)) {
    await mkdir(dirname(join(folder, path)), { recursive: true });
    await writeFile(join(folder, path), source);
  }
  const oxlint = resolve('node_modules/.bin/oxlint');
  const output = await new Promise<string>((done) => {
    execFile(oxlint, ['--format=json', 'lib'], { cwd: folder, maxBuffer: 2 ** 26 }, (_, stdout) =>
      done(stdout),
    );
  });
  return (JSON.parse(output) as { diagnostics: Finding[] }).diagnostics;
}

/** Returns the folders inside a folder of the table. */
function foldersIn(folder: string): string[] {
  if (folder === '.') return [];
  const found = readdirSync(join('lib', folder), { recursive: true, withFileTypes: true });
  return found
    .filter((entry) => entry.isDirectory())
    .map((entry) => posix.relative('lib', join(entry.parentPath, entry.name)));
}

/** Returns the specifier by which files in `from` import a file in `to`. */
function specifierOf(from: string, to: string): string {
  const path = posix.join(posix.relative(from, to), to === '.' ? 'index.js' : 'file.js');
  return path.startsWith('.') ? path : `./${path}`;
}

/** Returns the specifiers that the generated file in `from` imports, each with its name in the table. */
function tried(from: string): (readonly [specifier: string, name: string])[] {
  const folders = Object.keys(ALLOWED).flatMap((name) =>
    [name, ...foldersIn(name)].map((to) => [specifierOf(from, to), name] as const),
  );
  return [...folders, ...[...PACKAGES, ...NODE].map((name) => [name, name] as const)];
}

describe('the linter', () => {
  let findings: readonly Finding[];

  beforeAll(async () => {
    const sources = Object.keys(ALLOWED).flatMap((folder) =>
      [folder, ...foldersIn(folder)].map((from) => [
        posix.join('lib', from, 'importing.ts'),
        tried(from)
          .map(([specifier], index) => `export { it as it${index} } from '${specifier}';\n`)
          .join(''),
      ]),
    );
    findings = await lint(Object.fromEntries(sources) as Record<string, string>);
  });

  const places = Object.keys(ALLOWED).flatMap((folder) =>
    [folder, ...foldersIn(folder)].map((from) => ({ from, folder })),
  );

  test.each(places)(
    'the linter refuses exactly the imports in lib/$from that are not in the table of allowed imports',
    ({ from, folder }) => {
      const refused = findings
        .filter(({ filename, code }) => {
          const isHere = filename === posix.join('lib', from, 'importing.ts');
          return isHere && code === 'eslint(no-restricted-imports)';
        })
        .map(({ message }) => /^'(.*?)'/.exec(message)?.[1]);
      const mine = folder === '.' ? [] : [folder, ...NODE];
      const expected = tried(from)
        .filter(([, name]) => ![...mine, ...(ALLOWED[folder] ?? [])].includes(name))
        .map(([specifier]) => specifier);
      expect(refused.toSorted()).toEqual(expected.toSorted());
    },
  );

  test('the table of allowed imports has every folder of the library', () => {
    const inTable = places.map(({ from }) => from);
    const folders = readdirSync('lib', { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
      .map((entry) => posix.relative('lib', entry.parentPath) || '.');
    expect(inTable).toEqual(expect.arrayContaining([...new Set(folders)]));
  });

  test('the linter refuses a forbidden import even if it imports only types', async () => {
    const source = "import type { Redis } from 'ioredis';\n\nexport type Client = Redis;\n";
    await expect(lint({ 'lib/redlock/lease.ts': source })).resolves.toEqual([
      expect.objectContaining({ code: 'eslint(no-restricted-imports)' }),
    ]);
  });

  test.each([
    [
      'values',
      "import { b } from './b.js';\n\nexport const a = () => b();\n",
      "import { a } from './a.js';\n\nexport const b = () => a();\n",
    ],
    [
      'types',
      "import type { B } from './b.js';\n\nexport type A = B[];\n",
      "import type { A } from './a.js';\n\nexport type B = A | 1;\n",
    ],
  ])('the linter refuses two files that import %s from each other', async (_what, a, b) => {
    const codes = (await lint({ 'lib/core/a.ts': a, 'lib/core/b.ts': b })).map(({ code }) => code);
    expect(codes).toEqual(['import(no-cycle)', 'import(no-cycle)']);
  });
});
