import { sentencesOf } from './sentences.mjs';

const CLAUSE = 'a clause in place of a subject: name the subject first';
const FRAGMENT = 'no sentence: begin with its noun or its verb';
const PRONOUN = 'a pronoun before its noun: name the noun';

// The rule `sentences` reports other clauses, such as "What ...", in every sentence.
const OF_ALL = [
  [/^(how(?! (long|many|much|often|far|soon)\b)|why|which|whichever)\b/i, CLAUSE],
  // A clause before a comma can be adverbial, such as "Where no messages arrive, waiters poll".
  [/^where\b(?=[^,;:]*([;:.]|$))/i, CLAUSE],
];

const OF_COMMENTS = [
  ...OF_ALL,
  [/^of\b/i, FRAGMENT],
  [/^by (?!default\b|now\b|then\b)/i, FRAGMENT],
  [/^not (?!all\b|every|only\b|each\b)/i, FRAGMENT],
  [
    /^(about|after|at|for|from|in|like|on|to|under|with) (who|whom|whose|what|whatever|which|those)\b/i,
    FRAGMENT,
  ],
  [/^(at|for|from|in|on|to|under|with|without)(?= (\S+ ){0,1}\S+\.?$)/i, FRAGMENT],
  [/^(it|its|they|their|them|those)\b/i, PRONOUN],
];

const OF_NAMES = [...OF_ALL, [/^it is\b/i, 'an empty subject: begin with the verb of the outcome']];

const OPENINGS = { comment: OF_COMMENTS, name: OF_NAMES, message: OF_ALL, page: [] };

/**
 * A textlint rule: a comment, the name of a test and a message begin with a noun or a verb, so that the first words say
 * their subject. Questions may begin in any way.
 *
 * `starts` has the numbers of the lines at which a comment, a name or a message begins.
 */
export function openings(context, { kind, starts }) {
  const { Syntax, RuleError, report } = context;
  return {
    [Syntax.Paragraph](node) {
      if (!starts.includes(node.loc.start.line)) return;
      const [first] = sentencesOf(node);
      if (!first || first.text.endsWith('?')) return;
      for (const [pattern, reason] of OPENINGS[kind]) {
        const match = pattern.exec(first.text);
        if (match) return report(first.node, new RuleError(`"${match[0].trim()} ...": ${reason}`));
      }
    },
  };
}
