import { splitAST, SentenceSplitterSyntax } from 'sentence-splitter';

/** Openings that make a clause the subject: the reader learns only later what the sentence is about. */
const OPENINGS = [
  /^(who|whoever|whom|whose)\b/i,
  /^(what|whatever|whether)\b/i,
  /^how (long|many|much|often|far|soon)\b/i,
  /^(so (many|much)|that which|those who|one who)\b/i,
];

const DOUBLED = /\b([a-z]+) \1\b/i;

/**
 * A textlint rule: a sentence is short, begins with its subject, and repeats no word; a cell of a table is short.
 * Questions may begin as they like.
 */
export function sentences(context, { words, cell }) {
  const { Syntax, RuleError, report, getSource } = context;
  return {
    [Syntax.Paragraph](node) {
      for (const sentence of splitAST(node).children) {
        if (sentence.type !== SentenceSplitterSyntax.Sentence) continue;
        const text = readable(sentence.raw);
        const count = text.split(/\s+/).filter((word) => /\w/.test(word)).length;
        if (count > words) report(sentence, new RuleError(`${count} words: at most ${words} in a sentence`));
        const opening = OPENINGS.find((pattern) => pattern.test(text) && !text.endsWith('?'));
        if (opening)
          report(
            sentence,
            new RuleError(`"${opening.exec(text)[0]} ..." as a subject: name the subject first`),
          );
        const doubled = DOUBLED.exec(text);
        if (doubled) report(sentence, new RuleError(`"${doubled[0]}": the word stands twice`));
      }
    },
    [Syntax.TableCell](node) {
      const { length } = readable(getSource(node).replace(/^\||\|$/g, ''));
      if (length > cell)
        report(node, new RuleError(`${length} characters: at most ${cell} in a cell of a table`));
    },
  };
}

/** A piece of code counts as one word, and a link as its text. */
function readable(markdown) {
  return markdown
    .replace(/`[^`]+`/g, '0')
    .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replace(/[*_]+/g, '')
    .replace(/\s+/g, ' ')
    .trim();
}
