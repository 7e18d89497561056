import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, test } from '@jest/globals';

const root = resolve(import.meta.dirname, '../..');

const pages = ['docs/recipes.md', 'docs/setup.md', 'docs/moving.md'].map((page) =>
  readFileSync(join(root, page), 'utf8'),
);

const recipes = readdirSync(import.meta.dirname).filter((name) => !name.endsWith('.test.ts'));

test.each(recipes)('the code of %s is on exactly one page of the documentation', (name) => {
  const block = `\`\`\`ts\n${readFileSync(join(import.meta.dirname, name), 'utf8')}\`\`\`\n`;
  expect(pages.filter((page) => page.includes(block))).toHaveLength(1);
});

test('each recipe is imported by a test file', () => {
  const tests = readdirSync(import.meta.dirname).filter((name) => name.endsWith('.test.ts'));
  const tested = tests.map((name) => readFileSync(join(import.meta.dirname, name), 'utf8')).join('\n');
  const untested = recipes.filter((name) => !tested.includes(`'./${name.replace(/ts$/, 'js')}'`));
  expect(untested).toEqual([]);
  expect(recipes.length).toBeGreaterThan(8);
});
