import { resolve } from 'node:path';
import { TextlintKernel } from '@textlint/kernel';
import markdown from '@textlint/textlint-plugin-markdown';
import terminology from 'textlint-rule-terminology';
import { openings } from './openings.mjs';
import { sentences } from './sentences.mjs';
import { terms } from './terms.mjs';
import { textsOf } from './texts.mjs';

const kernel = new TextlintKernel();
const plugins = [{ pluginId: 'markdown', plugin: markdown.default }];

const rulesFor = ({ kind, starts }) => [
  { ruleId: 'sentences', rule: sentences, options: { kind, words: 35, cell: 200 } },
  { ruleId: 'openings', rule: openings, options: { kind, starts } },
  { ruleId: 'terms', rule: terminology, options: { defaultTerms: false, terms } },
];

/** Returns the problems of a file with this text in the order of its lines, each as one line of output. */
export async function problemsOf(file, text) {
  const problems = [];
  for (const piece of textsOf(file, text)) {
    const rules = rulesFor(piece);
    const filePath = resolve(file);
    const { messages } = await kernel.lintText(piece.text, { ext: '.md', filePath, plugins, rules });
    for (const { line, message } of messages) problems.push({ line: piece.lineOf(line), message });
  }
  return problems
    .toSorted((a, b) => a.line - b.line)
    .map(({ line, message }) => `${file}:${line}: ${message}`);
}
