import { execFile } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, posix, resolve } from 'node:path';
import { beforeAll, describe, expect, test } from '@jest/globals';
import { cleanUpAfterTests } from './support/leftovers.js';

// The configuration of the linter is the only list of the imports that each folder of `lib` may have. A pattern that
// matches nothing reports nothing, as if all code kept the rule. These tests therefore read the list, make files that
// import everything, and check that the linter refuses what is not in the list.

interface Override {
  readonly files: readonly string[];
  readonly rules: {
    readonly 'no-restricted-imports'?: readonly [string, { patterns: [{ group: readonly string[] }] }];
  };
}

const { overrides } = JSON.parse(readFileSync('.oxlintrc.json', 'utf8')) as { overrides: Override[] };

/**
 * Folders and packages that each folder of `lib` may import, beside its own files and the modules of Node. `.` is the
 * file `lib/index.ts`.
 */
const ALLOWED: Readonly<Record<string, readonly string[]>> = Object.fromEntries(
  overrides.flatMap(({ files: [file = ''], rules: { 'no-restricted-imports': rule } }) => {
    const folder = /^lib\/(.*)\*\*$|^lib\/\*\.ts$/.exec(file);
    if (!folder || !rule) return [];
    const from = folder[1]?.replace(/\/$/, '') ?? '.';
    return [[from, namesIn(rule[1].patterns[0].group, from)]];
  }),
);

/** Reads the patterns of the allowed imports: `!../core/**`, `!../../core/**` in inner folders, or `!rxjs`. */
function namesIn(group: readonly string[], from: string): string[] {
  const names = group.flatMap((pattern) => {
    const [, relative = '', path = '*'] = /^!((?:\.{1,2}\/)*)(.*?)(?:\/\*\*)?$/.exec(pattern) ?? [];
    if (/^\*|^node:/.test(path)) return [];
    const name = relative === '' ? path : folderAt(from, relative, path);
    return from !== '.' && name.startsWith(`${from}/`) ? [] : [name];
  });
  return [...new Set(names)];
}

/** The folder of `lib` to which a relative path leads from a folder, or else from a folder in it. */
function folderAt(from: string, relative: string, path: string): string {
  const paths = [relative, relative.slice('../'.length)].map((each) => posix.join(from, each, path));
  return paths.find((each) => existsSync(join('lib', each)) && !each.startsWith('..')) ?? path;
}

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

/** Returns the folders inside a folder of the list that are not in the list themselves. */
function foldersIn(folder: string): string[] {
  if (folder === '.') return [];
  const found = readdirSync(join('lib', folder), { recursive: true, withFileTypes: true });
  return found
    .filter((entry) => entry.isDirectory())
    .map((entry) => posix.relative('lib', join(entry.parentPath, entry.name)))
    .filter((each) => !(each in ALLOWED));
}

/** Returns the specifier by which files in `from` import a file in `to`. */
function specifierOf(from: string, to: string): string {
  const path = posix.join(posix.relative(from, to), to === '.' ? 'index.js' : 'file.js');
  return path.startsWith('.') ? path : `./${path}`;
}

/** Returns the specifiers that the generated file in `from` imports, each with its name in the list. */
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
    'the linter refuses exactly the imports in lib/$from that are not in its list of allowed imports',
    ({ from, folder }) => {
      const refused = findings
        .filter(({ filename, code }) => {
          const isHere = filename === posix.join('lib', from, 'importing.ts');
          return isHere && code === 'eslint(no-restricted-imports)';
        })
        .map(({ message }) => /^'(.*?)'/.exec(message)?.[1]);
      const allowed = [...(folder === '.' ? [] : [folder, ...NODE]), ...(ALLOWED[folder] ?? [])];
      const expected = tried(from)
        .filter(([, name]) => !allowed.some((each) => name === each || name.startsWith(`${each}/`)))
        .map(([specifier]) => specifier);
      expect(refused.toSorted()).toEqual(expected.toSorted());
    },
  );

  test('imports of folders point in one direction: no folder imports a folder that imports it', () => {
    const reached = new Map<string, ReadonlySet<string>>();
    const reachedFrom = (folder: string, through: readonly string[]): ReadonlySet<string> => {
      expect(through).not.toContain(folder);
      const known = reached.get(folder);
      if (known) return known;
      const all = (ALLOWED[folder] ?? [])
        .filter((name) => name in ALLOWED)
        .flatMap((name) => [name, ...reachedFrom(name, [...through, folder])]);
      reached.set(folder, new Set(all));
      return new Set(all);
    };
    for (const folder of Object.keys(ALLOWED)) reachedFrom(folder, []);
    expect([...(reached.get('module') ?? [])]).toEqual(
      expect.arrayContaining(['decorator', 'service', 'core']),
    );
    expect(reached.get('core')).toEqual(new Set());
    expect(reached.get('stores/redis')).toEqual(new Set(['core']));
  });

  test('the list of allowed imports has every folder of the library', () => {
    const inList = places.map(({ from }) => from);
    const folders = readdirSync('lib', { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
      .map((entry) => posix.relative('lib', entry.parentPath) || '.');
    expect(inList).toEqual(expect.arrayContaining([...new Set(folders)]));
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
