import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, test } from '@jest/globals';
import ts from 'typescript';

const root = resolve(import.meta.dirname, '..');

test('docs/observability.md lists every channel and every field of its events', () => {
  const page = readFileSync(join(root, 'docs/observability.md'), 'utf8').replaceAll(/^```.*?^```$/gms, '');
  const documented = new Map(
    [...page.matchAll(/^- `((?:Lock|Node|Leader|Force|Thread)\w*Event)`: (.*(?:\n .*)*)$/gm)].map(
      ([, name = '', fields]) => [
        name,
        [...(fields ?? '').matchAll(/`(\w+)`/g)].map(([, field]) => field).toSorted(),
      ],
    ),
  );
  const program = ts.createProgram([join(root, 'lib/index.ts')], {
    module: ts.ModuleKind.NodeNext,
    strict: true,
    noEmit: true,
  });
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(join(root, 'lib/index.ts'));
  const exported = checker.getExportsOfModule(checker.getSymbolAtLocation(source!)!);
  const channels = exported.filter(({ name }) => name.endsWith('_CHANNEL')).map(({ name }) => name);
  expect(channels).toHaveLength(documented.size);
  for (const [name, fields] of documented) {
    expect(page).toMatch(new RegExp(`^\\| \`nestjs-redlock:[\\w-]+\` .*\`${name}\``, 'm'));
    const type = exported.find((each) => each.name === name)!;
    const properties = checker.getDeclaredTypeOfSymbol(checker.getAliasedSymbol(type)).getProperties();
    expect([name, properties.map((property) => property.name).toSorted()]).toEqual([name, fields]);
  }
});
