import { describe, expect, test } from '@jest/globals';
import { LockHeldError, LockLostError, LockUnavailableError } from '../../lib/core/errors.js';

describe('a key or owner that would begin a line or colour the log', () => {
  const KEY = 'a\n[Nest] ERROR all is lost \u001B[31m\u009B2J\u2028';
  const SHOWN = String.raw`a\u000a[Nest] ERROR all is lost \u001b[31m\u009b2J\u2028`;

  test.each<[string, Error]>([
    ['LockHeldError', new LockHeldError([KEY], KEY, 5)],
    ['LockHeldError of a tick', new LockHeldError([KEY], KEY, 5, { ranTick: 0 })],
    ['LockUnavailableError', new LockUnavailableError([KEY], 'none answered')],
    ['LockLostError', new LockLostError([KEY], 'it ended')],
  ])('is escaped in the message of a %s', (_name, { message }) => {
    expect(message).toContain(`"${SHOWN}"`);
    expect(message).not.toMatch(/[\p{Cc}\u2028]/u);
  });

  test('is itself in the fields', () => {
    expect(new LockHeldError([KEY], KEY, 5)).toMatchObject({ keys: [KEY], owner: KEY });
  });
});
