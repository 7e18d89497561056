import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { beforeAll, describe, expect, test } from '@jest/globals';
import { build } from 'esbuild';
import { runCommand } from './consumers/run-command.js';
import { cleanUpAfterTests } from './support/leftovers.js';

// The workflows of .github/ run only on GitHub. These tests check them with the parser of GitHub.

const WORKFLOWS = '.github/workflows';
const root = resolve(import.meta.dirname, '..');
const files = (await readdir(WORKFLOWS)).map((name) => join(WORKFLOWS, name));

let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'workflows-'));
  cleanUpAfterTests(() => rm(folder, { recursive: true, force: true }));
  // The parser imports JSON without the attribute that Node requires, so it must be bundled.
  await build({
    entryPoints: [resolve(import.meta.dirname, 'fixtures/parse-workflows.mjs')],
    bundle: true,
    platform: 'node',
    format: 'cjs',
    outfile: join(folder, 'parse.cjs'),
    logLevel: 'error',
  });
});

async function complaintsAbout(...paths: string[]): Promise<string[]> {
  const output = await runCommand(process.execPath, [join(folder, 'parse.cjs'), ...paths], { cwd: root });
  return JSON.parse(output) as string[];
}

test('the parser of GitHub accepts each workflow', async () => {
  expect(files.length).toBeGreaterThan(2);
  await expect(complaintsAbout(...files)).resolves.toEqual([]);
});

test.each([
  ['an unknown key', 'on: push\njobs: { a: { runs-on: x, step: [] } }', /step/],
  [
    'a dependency on an unknown job',
    'on: push\njobs: { a: { runs-on: x, needs: b, steps: [{ run: ls }] } }',
    /no dependencies/,
  ],
  ['an unknown context', 'on: push\njobs: { a: { runs-on: x, steps: [{ run: "${{ foo.bar }}" }] } }', /foo/],
])('the parser of GitHub reports %s in a workflow', async (_name, content, message) => {
  const file = join(folder, 'broken.yml');
  await writeFile(file, content);
  await expect(complaintsAbout(file)).resolves.toContainEqual(expect.stringMatching(message));
});

test.each(files)(
  '%s has by default only the permission to read the repository, and pins each action to a commit',
  async (file) => {
    const text = await readFile(file, 'utf8');
    expect(text).toMatch(/^permissions:\n {2}contents: read\n\n/m);
    const used = [...text.matchAll(/uses: (.*)/g)].map(([, action = '']) => action);
    expect(used.length).toBeGreaterThan(0);
    expect(used.filter((each) => !/^(\.\/|[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$)/.test(each))).toEqual([]);
  },
);

describe('.github/check-release.mjs', () => {
  /** Runs the check for this tag, package and changelog; resolves to its output. */
  async function check(tag: string, json: object, changelog: string): Promise<string> {
    await writeFile(join(folder, 'package.json'), JSON.stringify(json));
    await writeFile(join(folder, 'CHANGELOG.md'), changelog);
    const script = resolve(root, '.github/check-release.mjs');
    return runCommand(process.execPath, [script, tag], { cwd: folder });
  }

  const ready = { version: '1.2.3', repository: 'github:owner/name' };
  const changelog = '# Changelog\n\n## 1.2.3 (2026-01-31)\n\n- New.\n';

  test('.github/check-release.mjs accepts a version with a matching tag, a changelog entry and a repository', async () => {
    await expect(check('v1.2.3', ready, changelog)).resolves.toBe('');
  });

  test.each([
    ['another tag', 'v1.2.4', ready, changelog, /tag v1\.2\.3/],
    ['an unreleased changelog', 'v1.2.3', ready, '## 1.2.3 (unreleased)\n', /1\.2\.3 \(YYYY-MM-DD\)/],
    ['no repository', 'v1.2.3', { version: '1.2.3' }, changelog, /no `repository`/],
  ])('.github/check-release.mjs refuses a release with %s', async (_name, tag, json, text, message) => {
    await expect(check(tag, json, text)).rejects.toThrow(message);
  });
});
