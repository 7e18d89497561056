import { expect, test } from '@jest/globals';
import { readArguments } from '../../bench/arguments.js';

test.each<[string, string[], RegExp]>([
  [
    'a group that is none',
    ['lateness'],
    /There is no group "lateness"; there are latency, network, throughput/,
  ],
  [
    'an option that is none',
    ['--bogus'],
    /Unknown option '--bogus'; npm run bench -- --help says what there is/,
  ],
  [
    'a contender that is none',
    ['--only', 'ours,theirs'],
    /There is no contender "theirs"; there are raw, ours/,
  ],
  [
    'nodes that are no number',
    ['--nodes', 'x'],
    /--nodes must be whole numbers, at least 1, .* 1,5; not "x"/,
  ],
  ['no node', ['--nodes', '1,0'], /--nodes must be whole numbers/],
  [
    'an effort that is no number',
    ['--effort', 'x'],
    /--effort must be a number above 0, such as 0\.1; not "x"/,
  ],
  ['no effort', ['--effort', '0'], /--effort must be a number above 0/],
])('%s is refused with one line that says what to write', (_what, args, message) => {
  expect(() => readArguments(args)).toThrow(message);
  // The dot matches no end of a line.
  expect(() => readArguments(args)).toThrow(/^.*$/);
});
