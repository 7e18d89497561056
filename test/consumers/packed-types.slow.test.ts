import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { beforeAll, describe, expect, test } from '@jest/globals';
import ts from 'typescript';
import { assertBuilt } from './packed-package.js';
import { runCommand } from './run-command.js';

const ROOT = resolve(import.meta.dirname, '../..');
const ENTRIES = [
  'index',
  'fencing',
  'testing',
  'health',
  'metrics',
  'tracing',
  'postgres',
  'mysql',
  'store',
  'etcd',
  'zookeeper',
  'standalone',
];
const sourceOf = (entry: string): string => join(ROOT, 'lib', entry === 'index' ? '' : entry, 'index.ts');
const typesOf = (entry: string, format = 'esm'): string => join(ROOT, 'dist', format, `${entry}.d.ts`);

let program: ts.Program;
let checker: ts.TypeChecker;

beforeAll(() => {
  assertBuilt();
  const config = ts.getParsedCommandLineOfConfigFile(join(ROOT, 'lib/tsconfig.json'), undefined, {
    ...ts.sys,
    onUnRecoverableConfigFileDiagnostic: ({ messageText }) => {
      throw new Error(ts.flattenDiagnosticMessageText(messageText, '\n'));
    },
  });
  program = ts.createProgram(
    ENTRIES.flatMap((entry) => [sourceOf(entry), typesOf(entry), typesOf(entry, 'cjs')]),
    // With `skipLibCheck: false`, the compiler checks every line of the packed types.
    { ...config?.options, noEmit: true, rootDir: ROOT, outDir: undefined },
  );
  checker = program.getTypeChecker();
});

function exportsOf(file: string): readonly ts.Symbol[] {
  const module = checker.getSymbolAtLocation(program.getSourceFile(file)!);
  return checker
    .getExportsOfModule(module!)
    .map((symbol) => (symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol));
}

/** Returns the names that a file exports as values. A class that is exported as a type is not among them. */
function valuesOf(file: string): string[] {
  const module = checker.getSymbolAtLocation(program.getSourceFile(file)!);
  const isType = ({ declarations = [] }: ts.Symbol): boolean =>
    declarations.some(
      (each) => ts.isExportSpecifier(each) && (each.isTypeOnly || each.parent.parent.isTypeOnly),
    );
  const exported = checker.getExportsOfModule(module!).filter((symbol) => !isType(symbol));
  const targets = exported.map((symbol) =>
    symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol,
  );
  return targets.filter(({ flags }) => flags & ts.SymbolFlags.Value).map(({ name }) => name);
}

/** Returns the text of a docstring, with its tags. */
function docstringOf(symbol: ts.Symbol): string {
  const tags = symbol
    .getJsDocTags(checker)
    .map(({ name, text }) => `@${name} ${ts.displayPartsToString(text)}`);
  const text = [ts.displayPartsToString(symbol.getDocumentationComment(checker)), ...tags].join('\n').trim();
  // TypeScript adds a blank to the target of a link.
  return text.replaceAll(/(\{@link [^}]*?) \}/g, '$1}');
}

/** Returns the docstrings of the exports of a file and of their public members, by name. */
function docstringsOf(file: string): Readonly<Record<string, string>> {
  const all = exportsOf(file).flatMap((symbol) => [
    [symbol.name, symbol] as const,
    ...[...(symbol.members?.values() ?? []), ...(symbol.exports?.values() ?? [])].map(
      (member) => [`${symbol.name}.${member.name}`, member] as const,
    ),
  ]);
  const texts = all.map(([name, symbol]) => [name, docstringOf(symbol)] as const);
  return Object.fromEntries(
    texts.filter(([name, text]) => text !== '' && !name.includes('#') && !text.includes('@internal')),
  );
}

describe.each(ENTRIES)('the packed types of %s', (entry) => {
  test('the packed types export exactly the names that the source exports', async () => {
    const names = (symbols: readonly ts.Symbol[]): string[] => symbols.map(({ name }) => name).sort();
    const source = exportsOf(sourceOf(entry));
    expect(names(exportsOf(typesOf(entry)))).toEqual(names(source));
    const script = `console.log(Object.keys(await import('./dist/esm/${entry}.js')).sort().join())`;
    const values = await runCommand(process.execPath, ['--input-type=module', '-e', script], { cwd: ROOT });
    expect(values.trim().split(',')).toEqual(valuesOf(sourceOf(entry)).toSorted());
  });

  test('the packed types contain the docstrings of the source', () => {
    const docstrings = docstringsOf(sourceOf(entry));
    expect(Object.keys(docstrings).length).toBeGreaterThan(0);
    expect(docstringsOf(typesOf(entry))).toEqual(docstrings);
  });

  test('the packed types are identical for ES modules and CommonJS', async () => {
    await expect(readFile(typesOf(entry, 'cjs'), 'utf8')).resolves.toBe(
      await readFile(typesOf(entry), 'utf8'),
    );
  });
});

test('the packed types compile, and contain no internals', () => {
  const ours = program.getSourceFiles().filter(({ fileName }) => fileName.startsWith(join(ROOT, 'dist')));
  expect(ours.length).toBeGreaterThan(ENTRIES.length);
  for (const file of ours) {
    const messages = program.getSemanticDiagnostics(file).map(({ messageText }) => messageText);
    expect({ file: file.fileName, messages }).toEqual({ file: file.fileName, messages: [] });
    expect(file.text).not.toMatch(/@internal|\bLocker\b/);
  }
});
