import { splitAST, SentenceSplitterSyntax } from 'sentence-splitter';

/** Openings that make a clause the subject: the reader learns only later what the sentence is about. */
const OPENINGS = [
  /^(who|whoever|whom|whose)\b/i,
  /^(what|whatever|whether)\b/i,
  /^how (long|many|much|often|far|soon)\b/i,
  /^(so (many|much)|that which|those who|one who)\b/i,
];

const DOUBLED = /\b([a-z]+) \1\b/i;

/** A link, but no picture. */
const LINK = /(?<!!)\[[^\]]*\]\([^)]*\)/g;

/** A list of links, perhaps after its subject: `**Use it**: [decorator](...), [service](...)`. */
const LIST_OF_LINKS = /^(\*\*[^*]+\*\*:\s*)?L([,;] L)*[,;.]?$/;

/** A word and a placeholder in capitals, such as in `--role ROLE`. */
const PLACEHOLDER = /^[a-z]+ [A-Z]+$/;

/**
 * A textlint rule: a sentence is short, begins with its subject, and repeats no word; on a page it has at most one
 * link, unless it is a list of links. A cell of a table is short, and has at most one link, too. Questions may begin in
 * any way. In a message a semicolon ends a sentence, because the remedy follows it.
 *
 * The package that splits sentences does not split after a number, so this rule does.
 */
export function sentences(context, { kind, words, cell }) {
  const { Syntax, RuleError, report, getSource } = context;
  return {
    [Syntax.Paragraph](paragraph) {
      for (const { node, text } of sentencesOf(paragraph)) {
        const links = kind === 'page' ? linksIn(node.raw) : 0;
        if (links > 1) report(node, new RuleError(`${links} links: at most one in a sentence`));
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
      const links = linksIn(getSource(node).replace(/^\||\|$/g, ''));
      if (links > 1) report(node, new RuleError(`${links} links: at most one in a cell of a table`));
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

/** The number of links in a sentence; 0 for a list of links. */
function linksIn(markdown) {
  const links = markdown.match(LINK)?.length ?? 0;
  const rest = markdown.replace(LINK, 'L').replace(/\s+/g, ' ').trim();
  return LIST_OF_LINKS.test(rest) ? 0 : links;
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
