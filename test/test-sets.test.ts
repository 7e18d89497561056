import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';

// `npm test` runs the files `*.test.ts` without the slow ones, `*.slow.test.ts`. `npm run test:all` runs all of them, and
// `npm run test:ci` also the tests that need a browser.

const { scripts } = JSON.parse(readFileSync('package.json', 'utf8')) as {
  scripts: Readonly<Record<string, string>>;
};

/** Returns the test files that Jest runs for a script of package.json. */
function filesOf(script: string): readonly string[] {
  const [, options = ''] = /npm run (?:-s )?test:jest(?: -- (.*))?$/.exec(scripts[script] ?? '') ?? [];
  const args = ['node_modules/jest/bin/jest.js', '--listTests', ...options.split(' ').filter(Boolean)];
  return execFileSync(process.execPath, args, { encoding: 'utf8' })
    .split('\n')
    .filter((line) => line.endsWith('.ts'))
    .toSorted();
}

const files = readdirSync('test', { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.test.ts'))
  .map((name) => join(process.cwd(), 'test', name))
  .toSorted();
const [slow, quick] = [true, false].map((isSlow) =>
  files.filter((name) => name.endsWith('.slow.test.ts') === isSlow),
);

test('`npm run test:all` runs every test file', () => {
  expect(slow!.length).toBeGreaterThan(50);
  expect(filesOf('test:all')).toEqual(files);
});

test('`npm test` runs every test file whose name does not end in `.slow.test.ts`', () => {
  expect(quick!.length).toBeGreaterThan(150);
  expect(filesOf('test')).toEqual(quick);
});

test('`npm run test:ci` runs every test file, and the tests that need a browser except the long ones', () => {
  const long = /\/test\/(site\/|lab\/playground|board\/pictures)/;
  const browser = filesOf('test:browser').filter((name) => !long.test(name));
  expect(browser.length).toBeGreaterThan(1);
  expect(filesOf('test:ci')).toEqual([...files, ...browser].toSorted());
});

test('.ci/run runs all tests, once', () => {
  const steps = readFileSync('.ci/run', 'utf8').match(/^step npm (run )?test.*$/gm) ?? [];
  expect(steps).toEqual(['step npm run test:ci &']);
});
