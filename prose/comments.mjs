import ts from 'typescript';

/**
 * The comments of a TypeScript file as Markdown, each comment a block of its own. `lines` has for each line of the
 * text its line in the file.
 *
 * Left out: TSDoc examples, and tables such as that of a script's KEYS and ARGV, which are no sentences.
 */
export function commentsOf(source) {
  const text = [];
  const lines = [];
  const add = (line, origin) => {
    text.push(line);
    lines.push(origin);
  };
  for (const block of blocksOf(source)) {
    let isTable = false;
    let isExample = false;
    for (const { line, at } of block) {
      const tag = /^@(\w+)\s*/.exec(line);
      if (tag) isExample = tag[1] === 'example' || tag[1] === 'see';
      isTable = /^[\w[\]]+ {2,}\S/.test(line) || (isTable && !tag && line !== '');
      if (isTable || isExample) continue;
      if (tag) add('', at);
      add(plain(tag ? line.slice(tag[0].length) : line), at);
    }
    add('', block[0].at);
  }
  return { text: text.join('\n'), lines };
}

/** Without the name of a parameter and without links, neither of which Markdown knows. */
function plain(line) {
  return line.replace(/^[\w.[\]]+ - /, '').replace(/\{@link (\S+?)\}/g, '`$1`');
}

/** Consecutive comments of one line each are one block. */
function blocksOf(source) {
  const blocks = [];
  let last;
  for (const { range, line, column, lineBefore } of rangesOf(source)) {
    const comment = source.slice(range.pos, range.end);
    const isLine = range.kind === ts.SyntaxKind.SingleLineCommentTrivia;
    const rows = isLine
      ? [comment.replace(/^\/\/ ?/, '')]
      : comment
          .replace(/^\/\*\*?/, '')
          .replace(/\*\/$/, '')
          .split('\n')
          .map((row) => row.replace(/^\s*\*? ?/, '').trimEnd());
    const block = rows.map((row, index) => ({ line: row, at: line + index }));
    const isNext = isLine && last?.isLine && last.line === line - 1 && last.column === column && !lineBefore;
    if (isNext) blocks.at(-1).push(...block);
    else blocks.push(block);
    last = { isLine, line, column };
  }
  return blocks;
}

function* rangesOf(source) {
  const file = ts.createSourceFile('file.ts', source, ts.ScriptTarget.Latest, true);
  const seen = new Map();
  const visit = (node) => {
    const leading = ts.getLeadingCommentRanges(source, node.getFullStart()) ?? [];
    const trailing = ts.getTrailingCommentRanges(source, node.getEnd()) ?? [];
    for (const range of [...leading, ...trailing]) seen.set(range.pos, range);
    for (const child of node.getChildren(file)) visit(child);
  };
  visit(file);
  for (const range of [...seen.values()].toSorted((a, b) => a.pos - b.pos)) {
    const { line, character } = file.getLineAndCharacterOfPosition(range.pos);
    const lineBefore = source.slice(range.pos - character, range.pos).trim();
    yield { range, line: line + 1, column: character, lineBefore };
  }
}
