import { splitAST, SentenceSplitterSyntax } from 'sentence-splitter';

/** Openings that make a clause the subject: the reader learns only later what the sentence is about. */
const OPENINGS = [
  /^(who|whoever|whom|whose)\b/i,
  /^(what|whatever|whether)\b/i,
  /^how (long|many|much|often|far|soon)\b/i,
  /^(so (many|much)|that which|those who|one who)\b/i,
];

const DOUBLED = /\b([a-z]+) \1\b/i;

/** A word and a placeholder in capitals, such as in `--role ROLE`. */
const PLACEHOLDER = /^[a-z]+ [A-Z]+$/;

/**
 * A textlint rule: a sentence is short, begins with its subject, and repeats no word; a cell of a table is short.
 * Questions may begin in any way. In a message a semicolon ends a sentence, because the remedy follows it.
 *
 * The package that splits sentences does not split after a number, so this rule does.
 */
export function sentences(context, { kind, words, cell }) {
  const { Syntax, RuleError, report, getSource } = context;
  return {
    [Syntax.Paragraph](paragraph) {
      for (const { node, text } of sentencesOf(paragraph)) {
        const count = Math.max(
          ...text.split(kind === 'message' ? /; |\d\. / : /\d\. (?=[A-Z])/).map(wordsIn),
        );
        if (count > words) report(node, new RuleError(`${count} words: at most ${words} in a sentence`));
        const opening = OPENINGS.find((pattern) => pattern.test(text) && !text.endsWith('?'));
        if (opening)
          report(node, new RuleError(`"${opening.exec(text)[0]} ..." as a subject: name the subject first`));
        const doubled = DOUBLED.exec(text);
        if (doubled && !PLACEHOLDER.test(doubled[0]))
          report(node, new RuleError(`"${doubled[0]}": the word stands twice`));
      }
    },
    [Syntax.TableCell](node) {
      const { length } = readable(getSource(node).replace(/^\||\|$/g, ''));
      if (length > cell)
        report(node, new RuleError(`${length} characters: at most ${cell} in a cell of a table`));
    },
  };
}

/** The sentences of a paragraph, each with its node and its text. */
export function sentencesOf(paragraph) {
  return splitAST(paragraph)
    .children.filter(({ type }) => type === SentenceSplitterSyntax.Sentence)
    .map((node) => ({ node, text: readable(node.raw) }));
}

function wordsIn(text) {
  return text.split(/\s+/).filter((word) => /\w/.test(word)).length;
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
