// Lints the prose of the project: pages, comments, names of tests, and messages of the library.
//
// node prose/lint.mjs             all files
// node prose/lint.mjs PATH ...    these files, and all files below these folders
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { TextlintKernel } from '@textlint/kernel';
import markdown from '@textlint/textlint-plugin-markdown';
import terminology from 'textlint-rule-terminology';
import { openings } from './openings.mjs';
import { sentences } from './sentences.mjs';
import { terms } from './terms.mjs';
import { textsOf } from './texts.mjs';

/** The files with prose, as patterns of Git. Git leaves out all that is built or installed. */
const FILES = [
  ...['CONTRIBUTING.md', 'README.md', 'SECURITY.md', 'bench/README.md', ':(glob)docs/*.md'],
  ...['*.ts', '*.tsx', '*.mjs', '*.css'],
];

const kernel = new TextlintKernel();
const plugins = [{ pluginId: 'markdown', plugin: markdown.default }];

const rulesFor = ({ kind, starts }) => [
  { ruleId: 'sentences', rule: sentences, options: { kind, words: 35, cell: 200 } },
  { ruleId: 'openings', rule: openings, options: { kind, starts } },
  { ruleId: 'terms', rule: terminology, options: { defaultTerms: false, terms } },
];

/** The problems of a file in the order of its lines, each as one line of output. */
async function problemsOf(file) {
  const problems = [];
  for (const piece of textsOf(file, readFileSync(file, 'utf8'))) {
    const rules = rulesFor(piece);
    const filePath = resolve(file);
    const { messages } = await kernel.lintText(piece.text, { ext: '.md', filePath, plugins, rules });
    for (const { line, message } of messages) problems.push({ line: piece.lineOf(line), message });
  }
  return problems
    .toSorted((a, b) => a.line - b.line)
    .map(({ line, message }) => `${file}:${line}: ${message}`);
}

function filesIn(paths) {
  const options = ['--cached', '--others', '--exclude-standard', '-z', '--'];
  return execFileSync('git', ['ls-files', ...options, ...paths], { encoding: 'utf8' })
    .split('\0')
    .filter((file) => file !== '' && existsSync(file));
}

const given = process.argv.slice(2);
const all = filesIn(FILES);
const files =
  given.length === 0
    ? all
    : given.flatMap((path) => {
        const below = all.filter((file) => file.startsWith(`${path.replace(/\/$/, '')}/`));
        return below.length > 0 ? below : [path];
      });
for (const file of new Set(files)) {
  for (const problem of await problemsOf(file)) {
    console.log(problem);
    process.exitCode = 1;
  }
}
