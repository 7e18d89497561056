import { spawnSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { problemsOf } from '../prose/problems.mjs';
import { cleanUpAfterTests } from './support/leftovers.js';

// `npm run lint` checks the prose of the project. These tests show with small files which problems the linter reports.

/** The problems in a file with this text, each as `line: message`. */
async function problemsIn(name: string, text: string): Promise<string[]> {
  return (await problemsOf(name, text)).map((problem) => problem.slice(name.length + 1));
}

/** The problems of a file with these comments, each on a line between statements. */
function problemsOfComments(comments: readonly string[]): Promise<string[]> {
  return problemsIn('lock.ts', comments.map((comment) => `// ${comment}\nlock();`).join('\n'));
}

const CLAUSE = 'a clause in place of a subject: name the subject first';
const FRAGMENT = 'no sentence: begin with its noun or its verb';
const PRONOUN = 'a pronoun before its noun: name the noun';

const LONG = `${'one two three four five '.repeat(7)}six.`;

test('the command of the prose linter ends with code 1 and prints problems with file and line, if there are any', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'prose-'));
  cleanUpAfterTests(() => rm(folder, { recursive: true, force: true }));
  const [good, bad] = [join(folder, 'good.md'), join(folder, 'bad.md')];
  await writeFile(good, 'The lock is held.');
  await writeFile(bad, 'The lock is held.\n\nThe the lock is held.');
  const runs = [[good], [good, bad]].map((files) =>
    spawnSync(process.execPath, ['prose/lint.mjs', ...files], { encoding: 'utf8' }),
  );
  expect(runs.map(({ status, stdout, stderr }) => ({ status, stdout, stderr }))).toEqual([
    { status: 0, stdout: '', stderr: '' },
    { status: 1, stdout: `${bad}:3: "The the": the word stands twice\n`, stderr: '' },
  ]);
});

test('the prose linter reports each problem of a page with its line number', async () => {
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

test('the prose linter reports a sentence or a cell with several links, unless it is a list of links', async () => {
  const page = [
    'Read [one](a.md) before [another](b.md).',
    '| page |\n| --- |\n| [one](a.md) or [another](b.md) |',
    'Read [one](a.md). Then read [another](b.md), beside ![a picture](c.png).',
    '- **Use it**: [one](a.md), [another](b.md),\n  [a third](c.md); [a fourth](d.md)',
  ];
  await expect(problemsIn('page.md', page.join('\n\n'))).resolves.toEqual([
    '1: 2 links: at most one in a sentence',
    '5: 2 links: at most one in a cell of a table',
  ]);
});

test('the prose linter ignores questions, and the words and the length of code on a page', async () => {
  const page = [
    'What happens when Redis dies?',
    'Set `deaf` `deaf`, and read [the page](https://example.com/owed).',
    `Run \`${LONG}\`.`,
    '```\nWho is owed\n```',
  ];
  await expect(problemsIn('page.md', page.join('\n\n'))).resolves.toEqual([]);
});

test('the prose linter reports problems in comments with line numbers, and ignores code', async () => {
  const source = [
    '/** What is locked. */',
    'export const what = "Who is owed";',
    '/**',
    ' * A lock.',
    ' *',
    ' * KEYS     what is owed',
    ' *          deaf',
    ' *',
    ' * ```ts',
    ' * @Injectable()',
    ' * ```',
    ' * It is owed.',
    ' *',
    ' * @param what - what is',
    ' * deaf',
    ' * @returns Whether it is held',
    ' * @example',
    ' * ```ts',
    ' * @Injectable()',
    ' * What is owed',
    ' * ```',
    ' */',
    'export function lock(what: string): string {',
    '  // A comment of',
    '  // two lines, owed.',
    '  return what; // Who asks?',
    '}',
  ];
  await expect(problemsIn('lock.ts', source.join('\n'))).resolves.toEqual([
    '1: "What ..." as a subject: name the subject first',
    expect.stringMatching(/^12: .*“owed”/),
    '14: "what ..." as a subject: name the subject first',
    expect.stringMatching(/^15: .*“deaf”/),
    '16: "Whether ..." as a subject: name the subject first',
    expect.stringMatching(/^25: .*“owed”/),
  ]);
});

test('the prose linter reports comments that begin with a clause, a fragment or a pronoun', async () => {
  const openings = [
    ['How', ' a lock ends.', CLAUSE],
    ['Why', ' the lock ended.', CLAUSE],
    ['Which', ' the command prints.', CLAUSE],
    ['Where', ' the key is.', CLAUSE],
    ['Of', ' the holders some have ended.', FRAGMENT],
    ['By', ' key and by id.', FRAGMENT],
    ['Not', ' before the end.', FRAGMENT],
    ['For those', ' who wait.', FRAGMENT],
    ['With what', ' the scripts read.', FRAGMENT],
    ['For', ' the board.', FRAGMENT],
    ['It', ' is closed.', PRONOUN],
    ['Its', ' end.', PRONOUN],
  ] as const;
  await expect(problemsOfComments(openings.map(([opening, rest]) => opening + rest))).resolves.toEqual(
    openings.map(([opening, , reason], index) => `${2 * index + 1}: "${opening} ...": ${reason}`),
  );
});

test('the prose linter allows comments that begin with a subject, a verb or an adverbial clause', async () => {
  const comments = [
    'The lock has ended. It was released. How it ended does not matter.',
    'Where no message arrives, waiters poll.',
    'However long the wait is, the lock is free then.',
    'By default the lock is renewed.',
    'Not all nodes answer.',
    'For the board the store lists its locks.',
    'With permits a key has several holders.',
    'Why does the lock end?',
    'Often a lock is free.',
  ];
  await expect(problemsOfComments(comments)).resolves.toEqual([]);
});

test('the prose linter reports problems in comments of JSX and style sheets, and ignores text outside comments', async () => {
  const page = 'export const page = (\n  <p>\n    // What is owed\n    {/* What is shown. */}\n  </p>\n);';
  await expect(problemsIn('page.tsx', page)).resolves.toEqual([
    '4: "What ..." as a subject: name the subject first',
  ]);
  const style = 'p {\n  color: red;\n}\n/* The color is\n   owed. */\n.owed {\n}';
  await expect(problemsIn('page.css', style)).resolves.toEqual([expect.stringMatching(/^5: .*“owed”/)]);
});

test('the prose linter reports problems in comments of Lua and SQL with line numbers', async () => {
  const source = [
    'const script = `',
    'local now = ${clock} -- What is asked.',
    '-- The queue of ${name}',
    '-- is owed.',
    "call('DEL', KEYS[1]) --owed",
    '`;',
    "const usage = 'nestjs-redlock -- what is owed';",
  ];
  await expect(problemsIn('lock.ts', source.join('\n'))).resolves.toEqual([
    '2: "What ..." as a subject: name the subject first',
    expect.stringMatching(/^4: .*“owed”/),
  ]);
});

test('the prose linter reports problems in the names of `test` and `describe` blocks', async () => {
  const source = [
    "describe('what is locked', () => {",
    "  test('whether it is held', run);",
    "  it('it is held', run);",
    "  test.each(rows)('how %s ends', run);",
    "  test.each`a`('who waits', run);",
    '  test.skip(`is owed to ${name}`, run);',
    `  test('${LONG}', run);`,
    "  test(isShort ? 'where the key is' : 'ends', run);",
    '});',
  ];
  await expect(problemsIn('lock.test.ts', source.join('\n'))).resolves.toEqual([
    '1: "what ..." as a subject: name the subject first',
    '2: "whether ..." as a subject: name the subject first',
    '3: "it is ...": an empty subject: begin with the verb of the outcome',
    `4: "how ...": ${CLAUSE}`,
    '5: "who ..." as a subject: name the subject first',
    expect.stringMatching(/^6: .*“owed”/),
    '7: 36 words: at most 35 in a sentence',
    `8: "where ...": ${CLAUSE}`,
  ]);
});

test('the prose linter allows test names that begin with a verb, and ignores the other strings of a test file', async () => {
  const source = [
    "test('rejects when a node is down', run);",
    "test('reports which nodes answer', 'what is owed', run);",
    "expect('what is owed');",
    "latest('whether it is owed');",
  ];
  await expect(problemsIn('lock.test.ts', source.join('\n'))).resolves.toEqual([]);
});

const MESSAGES = [
  "throw new Error('What is locked is owed.');",
  'throw new TypeError(`The lock on ${key} ` +',
  "  (isOwed ? 'is owed to a caller' : 'ends') + '. Whether it is held is not known.');",
  "const sql = 'select what from owed where key = $1';",
  "const short = 'owed';",
  `logger.warn('${LONG.replace('six.', '')}; six seven');`,
  `logger.warn('${LONG.replace('six.', 'six seven; ')}');`,
  'const text = `one of\nwhat is owed here`;',
];

test('the prose linter reports problems in the error and log messages of files in lib/', async () => {
  await expect(problemsIn('lib/lock.ts', MESSAGES.join('\n'))).resolves.toEqual([
    '1: "What ..." as a subject: name the subject first',
    expect.stringMatching(/^1: .*“owed”/),
    expect.stringMatching(/^2: .*“owed”/),
    '2: "Whether ..." as a subject: name the subject first',
    '2: "Whether ..." as a subject: name the subject first',
    '7: 37 words: at most 35 in a sentence',
  ]);
});

test('the prose linter ignores the error and log messages of files outside lib/', async () => {
  await expect(problemsIn('lab/lock.ts', MESSAGES.join('\n'))).resolves.toEqual([]);
});
