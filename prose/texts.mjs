import ts from 'typescript';
import { commentsOf, styleCommentsOf } from './comments.mjs';
import { messagesOf, testNamesOf } from './strings.mjs';

/**
 * The prose of a file by its kind: `page`, `comment`, `name` (of a test) or `message`. Each kind is one Markdown text,
 * in which each comment, name or message begins a paragraph.
 */
export function textsOf(name, source) {
  if (name.endsWith('.md')) return [{ kind: 'page', text: source, starts: [], lineOf: (line) => line }];
  if (name.endsWith('.css')) return [joined('comment', styleCommentsOf(source))];
  const file = ts.createSourceFile(name, source, ts.ScriptTarget.Latest, true);
  return [
    joined('comment', commentsOf(file)),
    joined('name', testNamesOf(file)),
    joined('message', isLibrary(name) ? messagesOf(file) : []),
  ];
}

/**
 * `true` for a file of the library. Messages of other programs are not linted: only people who work on the project read
 * them.
 */
function isLibrary(name) {
  return /(^|\/)lib\//.test(name);
}

/**
 * Joins pieces, each a list of rows, to a text. `starts` has the numbers of the lines of the text at which a piece
 * begins. `lineOf` converts the number of a line of the text into the number of the line in the file.
 */
function joined(kind, pieces) {
  const text = [];
  const lines = [];
  const starts = [];
  for (const rows of pieces) {
    starts.push(text.length + rows.findIndex((row) => row.text !== '') + 1);
    for (const row of [...rows, { text: '', line: rows.at(-1).line }]) {
      text.push(row.text);
      lines.push(row.line);
    }
  }
  return { kind, text: text.join('\n'), starts, lineOf: (line) => lines[line - 1] ?? line };
}
