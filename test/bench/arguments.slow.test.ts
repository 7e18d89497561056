import { expect, test } from '@jest/globals';
import { readArguments } from '../../bench/arguments.js';

test.each<[string, string[], RegExp]>([
  ['an unknown group', ['lateness'], /There is no group "lateness"; there are latency, network, throughput/],
  ['an unknown option', ['--bogus'], /Unknown option '--bogus'; npm run bench -- --help lists the options/],
  [
    'an unknown name after --only',
    ['--only', 'ours,theirs'],
    /There is no contender "theirs"; there are raw, ours/,
  ],
  [
    'a number of nodes that is not a number',
    ['--nodes', 'x'],
    /--nodes must be whole numbers, at least 1, .* 1,5; not "x"/,
  ],
  ['zero nodes', ['--nodes', '1,0'], /--nodes must be whole numbers/],
  [
    'an effort that is not a number',
    ['--effort', 'x'],
    /--effort must be a number above 0, such as 0\.1; not "x"/,
  ],
  ['an effort of zero', ['--effort', '0'], /--effort must be a number above 0/],
])(
  '`readArguments` refuses %s with a one-line message that says how to correct it',
  (_what, args, message) => {
    expect(() => readArguments(args)).toThrow(message);
    // The pattern matches one line only: the dot matches no line break.
    expect(() => readArguments(args)).toThrow(/^.*$/);
  },
);
