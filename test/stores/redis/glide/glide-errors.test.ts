import { expect, test } from '@jest/globals';
import { isNoScript, isRefusal } from '../../../../lib/stores/redis/connection/command-channel.js';
import { likeIoredis } from '../../../../lib/stores/redis/glide/glide-errors.js';

const SIGNALLED = 'An error was signalled by the server: - ';

// The texts are those of GLIDE 2.5.
test.each([
  [`${SIGNALLED}NoScriptError: No matching script.`, 'NOSCRIPT No matching script.'],
  [`${SIGNALLED}ReadOnly: You cannot`, 'READONLY You cannot'],
  [`${SIGNALLED}BusyLoadingError: x`, 'LOADING x'],
  [`${SIGNALLED}PermissionDenied: x`, 'NOPERM x'],
  [`${SIGNALLED}TryAgain: x`, 'TRYAGAIN x'],
  [`${SIGNALLED}Moved: 12 127.0.0.1:7001`, 'MOVED 12 127.0.0.1:7001'],
  [`${SIGNALLED}CrossSlot: x`, 'CROSSSLOT x'],
  [`${SIGNALLED}ClusterDown: x`, 'CLUSTERDOWN x'],
  [`${SIGNALLED}MasterDown: x`, 'MASTERDOWN x'],
  [`${SIGNALLED}ResponseError: x`, 'ERR x'],
  ['OOM: command not allowed', 'OOM command not allowed'],
  ['WRONGTYPE: the key', 'WRONGTYPE the key'],
])('the GLIDE error "%s" becomes the error of the server "%s"', (text, told) => {
  const [error] = likeIoredis([new Error(text)]) as [Error];
  expect(error.message).toBe(told);
  expect(isRefusal(error)).toBe(true);
  expect(isNoScript(error)).toBe(told.startsWith('NOSCRIPT'));
});

test.each([
  'Reached maximum inflight requests',
  'BrokenPipe: Cluster: Failed to receive command response from internal sender. RecvError(())',
  'timed out',
])('the GLIDE error "%s" is no answer of the server', (text) => {
  expect(isRefusal(likeIoredis(new Error(text)))).toBe(false);
});

test('bytes become text, also those that are no UTF-8, and a map becomes a flat list', () => {
  const bytes = Buffer.from('lock:\u{e9}');
  expect(likeIoredis([bytes, [bytes.subarray(0, 6)]])).toEqual(['lock:\u{e9}', ['lock:\u{fffd}']]);
  expect(likeIoredis([{ key: Buffer.from('a'), value: Buffer.from('b') }])).toEqual(['a', 'b']);
  expect(likeIoredis([{ key: 'save', value: '' }])).toEqual(['save', '']);
  expect(likeIoredis(['0', []])).toEqual(['0', []]);
  expect(likeIoredis([1, null, 'a', [2]])).toEqual([1, null, 'a', [2]]);
});
