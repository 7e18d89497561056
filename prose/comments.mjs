import ts from 'typescript';
import { isMultiLine, rowsOf, stringsOf } from './strings.mjs';

/**
 * The comments of a parsed TypeScript file, and of the Lua and SQL texts in its strings. Each comment is a list of
 * rows, a row being Markdown and its line in the file.
 *
 * Left out: TSDoc examples, and tables such as that of a script's KEYS and ARGV, which are no sentences.
 */
export function commentsOf(file) {
  return [...blocksOf(file), ...embeddedBlocksOf(file)].flatMap(withoutTables);
}

/** The comments of a style sheet, as {@link commentsOf} returns those of a TypeScript file. */
export function styleCommentsOf(source) {
  return [...source.matchAll(/\/\*[^]*?\*\//g)].map((match) => {
    const first = source.slice(0, match.index).split('\n').length;
    return rowsOfBlock(match[0]).map((text, index) => ({ text, line: first + index }));
  });
}

/**
 * Splits a block into comments, without tables, code and examples. Each TSDoc tag with a text begins a comment of its
 * own.
 */
function withoutTables(block) {
  const comments = [[]];
  let isTable = false;
  let isExample = false;
  let isCode = false;
  for (const { text, line } of block) {
    const isFence = text.startsWith('```');
    if (isFence) isCode = !isCode;
    // A decorator in the code of an example looks like a tag.
    const tag = isCode ? undefined : /^@(\w+)\s*/.exec(text);
    if (tag) isExample = tag[1] === 'example' || tag[1] === 'see';
    isTable = /^[\w[\]]+ {2,}\S/.test(text) || (isTable && !tag && text !== '');
    if (isTable || isExample || isCode || isFence) continue;
    if (tag) comments.push([]);
    comments.at(-1).push({ text: plain(tag ? text.slice(tag[0].length) : text), line });
  }
  return comments.filter((comment) => comment.some(({ text }) => text !== ''));
}

/** Removes the name of a parameter, and turns links into code: Markdown knows neither. */
function plain(text) {
  return text.replace(/^[\w.[\]]+ - /, '').replace(/\{@link (\S+?)\}/g, '`$1`');
}

/** Consecutive comments of one line each are one block. */
function blocksOf(file) {
  const blocks = [];
  let last;
  for (const { range, line, column, lineBefore } of rangesOf(file)) {
    const comment = file.text.slice(range.pos, range.end);
    const isLine = range.kind === ts.SyntaxKind.SingleLineCommentTrivia;
    const texts = isLine ? [comment.replace(/^\/\/ ?/, '')] : rowsOfBlock(comment);
    const block = texts.map((text, index) => ({ text, line: line + index }));
    const isNext = isLine && last?.isLine && last.line === line - 1 && last.column === column && !lineBefore;
    if (isNext) blocks.at(-1).push(...block);
    else blocks.push(block);
    last = { isLine, line, column };
  }
  return blocks;
}

function rowsOfBlock(comment) {
  return comment
    .replace(/^\/\*\*?/, '')
    .replace(/\*\/$/, '')
    .split('\n')
    .map((row) => row.replace(/^\s*\*? ?/, '').trimEnd());
}

function* rangesOf(file) {
  const { text } = file;
  const seen = new Map();
  const textsOfElements = [];
  const visit = (node) => {
    if (ts.isJsxText(node)) return void textsOfElements.push(node);
    const leading = ts.getLeadingCommentRanges(text, node.getFullStart()) ?? [];
    const trailing = ts.getTrailingCommentRanges(text, node.getEnd()) ?? [];
    for (const range of [...leading, ...trailing]) seen.set(range.pos, range);
    for (const child of node.getChildren(file)) visit(child);
  };
  visit(file);
  // The text of a JSX element can look like a comment.
  const isText = ({ pos }) => textsOfElements.some((element) => element.pos <= pos && pos < element.end);
  for (const range of [...seen.values()].toSorted((a, b) => a.pos - b.pos)) {
    if (isText(range)) continue;
    const { line, character } = file.getLineAndCharacterOfPosition(range.pos);
    const lineBefore = text.slice(range.pos - character, range.pos).trim();
    yield { range, line: line + 1, column: character, lineBefore };
  }
}

/** The comments in strings of several lines, which contain Lua or SQL. In both languages two dashes begin a comment. */
function embeddedBlocksOf(file) {
  const blocks = [];
  for (const string of stringsOf(file)) {
    if (!isMultiLine(string)) continue;
    let last;
    for (const { text, line } of rowsOf(string, file)) {
      const match = /^(|.*\s)--\s+(.*)$/.exec(text);
      if (!match) continue;
      const isNext = last === line - 1 && match[1].trim() === '';
      if (isNext) blocks.at(-1).push({ text: match[2], line });
      else blocks.push([{ text: match[2], line }]);
      last = line;
    }
  }
  return blocks;
}
