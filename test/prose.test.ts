import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { execFile } from 'node:child_process';
import { expect, test } from '@jest/globals';
import { cleanUpAfterTests } from './support/leftovers.js';

// `npm run lint` checks the prose of the project. On files made for it, this shows what the linter reports.

/** The problems in a file with this text, each as `line: message`. */
async function problemsIn(name: string, text: string): Promise<string[]> {
  const folder = await mkdtemp(join(tmpdir(), 'prose-'));
  cleanUpAfterTests(() => rm(folder, { recursive: true, force: true }));
  const file = join(folder, name);
  await writeFile(file, text);
  return new Promise((done) => {
    execFile(process.execPath, [resolve('prose/lint.mjs'), file], (error, stdout, stderr) => {
      const problems = stdout.split('\n').filter(Boolean);
      expect(stderr).toBe('');
      expect(error?.code ?? 0).toBe(problems.length > 0 ? 1 : 0);
      done(problems.map((problem) => problem.slice(file.length + 1)));
    });
  });
}

const LONG = `${'one two three four five '.repeat(7)}six.`;

test('reports each problem of a page with its line', async () => {
  const page = [
    'Who is refused opens a second connection.',
    'Whether the lock is held is decided by the clock.',
    'How long a node waits is an option.',
    LONG,
    'The the lock is held.',
    'A store that is deaf polls.',
    'The release is Owed.',
    `| page |\n| --- |\n| ${'x'.repeat(201)} |`,
  ];
  await expect(problemsIn('page.md', page.join('\n\n'))).resolves.toEqual([
    '1: "Who ..." as a subject: name the subject first',
    '3: "Whether ..." as a subject: name the subject first',
    '5: "How long ..." as a subject: name the subject first',
    '7: 36 words: at most 35 in a sentence',
    '9: "The the": the word stands twice',
    expect.stringMatching(/^11: .*“deaf”, use “without messages”/),
    expect.stringMatching(/^13: .*“Owed”, use “pending”/),
    '17: 201 characters: at most 200 in a cell of a table',
  ]);
});

test('reports nothing about questions, code and long sentences of code', async () => {
  const page = [
    'What happens when Redis dies?',
    'Set `deaf` `deaf`, and read [the page](https://example.com/owed).',
    `Run \`${LONG}\`.`,
    '```\nWho is owed\n```',
  ];
  await expect(problemsIn('page.md', page.join('\n\n'))).resolves.toEqual([]);
});

test('reports the problems of comments with their lines, and nothing about code', async () => {
  const source = [
    '/** What is locked. */',
    'export const what = "Who is owed";',
    '/**',
    ' * A lock.',
    ' *',
    ' * KEYS     what is owed',
    ' *          deaf',
    ' *',
    ' * @param what - what is',
    ' * deaf',
    ' * @returns Whether it is held',
    ' * @example',
    ' * Who is owed',
    ' */',
    'export function lock(what: string): string {',
    '  // A comment of',
    '  // two lines, owed.',
    '  return what; // Who asks?',
    '}',
  ];
  await expect(problemsIn('lock.ts', source.join('\n'))).resolves.toEqual([
    '1: "What ..." as a subject: name the subject first',
    '9: "what ..." as a subject: name the subject first',
    expect.stringMatching(/^10: .*“deaf”/),
    '11: "Whether ..." as a subject: name the subject first',
    expect.stringMatching(/^17: .*“owed”/),
  ]);
});
