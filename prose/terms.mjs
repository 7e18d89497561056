/**
 * Words that the project does not use, each with the word to use instead. The project uses the words of Redis and of
 * the locking literature, one word for each idea, and no metaphors. The patterns are regular expressions for whole
 * words.
 */
export const terms = [
  // Metaphors.
  ['deaf', 'without messages'],
  ['owed', 'pending'],
  ['lets? go of', 'release'],
  ['(stands?|standing|waits?|waiting) in line', 'wait in the queue'],
  ['c[ao]mes? to nothing', 'fail'],
  ['g[ai]ves? way', 'give up'],
  ['asleep', 'waiting'],
  // Old-fashioned.
  ['anew', 'again'],
  ['of late(?! \\w)', 'recently'],
  ['lately', 'recently'],
  ['for want of', 'because of missing'],
  ['in vain', 'without success'],
  ['whoever', 'any caller that'],
  ['lest', 'so that ... not'],
  ['(for|by|than) who', 'for a caller that'],
  // Two words for one idea.
  ['mend(s|ed|ing)?', 'fix'],
  ['lifts? the tokens?', 'raise the token'],
].map(([pattern, word]) => [`\\b(?:${pattern})\\b`, word]);
