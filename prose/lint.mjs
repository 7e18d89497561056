// Lints the prose of the documentation, and of the comments of the library.
//
// node prose/lint.mjs             all files
// node prose/lint.mjs FILE ...    these files
import { readdir, readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { TextlintKernel } from '@textlint/kernel';
import markdown from '@textlint/textlint-plugin-markdown';
import terminology from 'textlint-rule-terminology';
import { commentsOf } from './comments.mjs';
import { sentences } from './sentences.mjs';
import { terms } from './terms.mjs';

const kernel = new TextlintKernel();

const options = {
  ext: '.md',
  plugins: [{ pluginId: 'markdown', plugin: markdown.default }],
  rules: [
    { ruleId: 'sentences', rule: sentences, options: { words: 35, cell: 200 } },
    { ruleId: 'terms', rule: terminology, options: { defaultTerms: false, terms } },
  ],
};

/** The problems of a file, each as a line for people. */
async function problemsOf(file) {
  const source = await readFile(file, 'utf8');
  const { text, lines } = file.endsWith('.ts') ? commentsOf(source) : { text: source };
  const { messages } = await kernel.lintText(text, { ...options, filePath: resolve(file) });
  return messages.map(({ line, message }) => `${file}:${lines?.[line - 1] ?? line}: ${message}`);
}

async function allFiles() {
  const sources = (await readdir('lib', { recursive: true })).filter((name) => name.endsWith('.ts'));
  const pages = (await readdir('docs')).filter((name) => name.endsWith('.md'));
  return [
    ...['CONTRIBUTING.md', 'README.md', 'SECURITY.md'],
    ...pages.map((name) => `docs/${name}`),
    ...sources.map((name) => `lib/${name}`),
  ];
}

const given = process.argv.slice(2);
const files = given.length > 0 ? given : await allFiles();
for (const file of files) {
  for (const problem of await problemsOf(file)) {
    console.log(problem);
    process.exitCode = 1;
  }
}
