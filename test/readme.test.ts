import { expect, test } from '@jest/globals';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const root = dirname(dirname(fileURLToPath(import.meta.url)));

/** Returns the TypeScript blocks of a page, each as a module of its own. */
function snippetsOf(page: string): Map<string, string> {
  return blocksOf(page, readFileSync(join(root, page), 'utf8'));
}

function blocksOf(name: string, text: string): Map<string, string> {
  const blocks = [...text.matchAll(/```ts\n(.*?)```/gs)];
  return new Map(blocks.map(([, code], index) => [join(root, `${name}.${index + 1}.ts`), code ?? '']));
}

/** A cache of parsed files of packages and of the library. Without the cache, each program would parse them again. */
const parsed = new Map<string, ts.SourceFile | undefined>();

/** Returns the errors of the compiler about the snippets, with the settings of the project. */
function complaintsAbout(snippets: ReadonlyMap<string, string>): string[] {
  const { config } = ts.readConfigFile(join(root, 'tsconfig.json'), ts.sys.readFile) as { config: object };
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
  // An example may declare a variable without using it.
  const forExamples = { ...options, noUnusedLocals: false, noUnusedParameters: false };
  const host = ts.createCompilerHost(forExamples);
  const { fileExists, readFile, getSourceFile } = host;
  host.fileExists = (name) => snippets.has(name) || fileExists(name);
  host.readFile = (name) => snippets.get(name) ?? readFile(name);
  host.getSourceFile = (name, languageVersion, ...rest) => {
    const code = snippets.get(name);
    if (code !== undefined) return ts.createSourceFile(name, code, languageVersion);
    if (!parsed.has(name)) parsed.set(name, getSourceFile(name, languageVersion, ...rest));
    return parsed.get(name);
  };
  const program = ts.createProgram([...snippets.keys()], forExamples, host);
  return [...snippets.keys()].flatMap((name) => {
    const file = program.getSourceFile(name);
    return [...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)].map(
      ({ messageText, start }) => {
        const line = file && start !== undefined ? file.getLineAndCharacterOfPosition(start).line + 1 : 0;
        return `${name.slice(root.length + 1)}:${line} ${ts.flattenDiagnosticMessageText(messageText, '\n')}`;
      },
    );
  });
}

/** Returns the TypeScript blocks in the comments of a source file. */
function commentedSnippetsOf(file: string): Map<string, string> {
  const text = readFileSync(join(root, file), 'utf8').replaceAll(/^ *\* ?/gm, '');
  return blocksOf(file, text);
}

const docs = readdirSync(join(root, 'docs')).filter((name) => name.endsWith('.md'));

test('the code examples in README.md and docs/ compile', () => {
  const pages = ['README.md', ...docs.map((name) => `docs/${name}`)].map(snippetsOf);
  const snippets = new Map(pages.flatMap((page) => [...page]));
  expect(pages[0]?.size).toBeGreaterThan(0);
  expect(snippets.size).toBeGreaterThan(8);
  expect(complaintsAbout(snippets)).toEqual([]);
});

test('the code examples in the comments of lib/ compile', () => {
  const files = readdirSync(join(root, 'lib'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => `lib/${name}`);
  const snippets = new Map(files.flatMap((file) => [...commentedSnippetsOf(file)]));
  expect(snippets.size).toBeGreaterThan(12);
  expect(complaintsAbout(snippets)).toEqual([]);
});

test('the example test in docs/testing.md is a copy of test/testing/orders.example.test.ts', () => {
  const [, spec] = readFileSync(join(root, 'test/testing/orders.example.test.ts'), 'utf8').split(/^\/\/.*\n/);
  expect([...snippetsOf('docs/testing.md').values()][0]).toBe(spec);
});

test('the check of code examples reports an example that does not compile', () => {
  const broken = new Map([
    [join(root, 'broken.ts'), "import { WithLock } from 'nestjs-redlock';\nWithLock(7);\n"],
  ]);
  expect(complaintsAbout(broken)).toEqual([
    expect.stringMatching(/^broken\.ts:2 .*'number' is not assignable/),
  ]);
});
