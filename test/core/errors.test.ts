import { describe, expect, test } from '@jest/globals';
import type { LockHolder } from '../../lib/core/lock-info.js';
import { EXCLUSIVE, type LockKind, type LockMode, SHARED } from '../../lib/core/lock-mode.js';
import { LockHeldError, LockLostError, LockUnavailableError } from '../../lib/core/errors.js';

describe('a LockHeldError of a lock that several callers can hold', () => {
  const holder: LockHolder = {
    id: 'x',
    owner: 'api:1',
    since: new Date(0),
    remaining: 1_500,
    fencingToken: 7,
    mode: 'permits',
    slot: 2,
  };
  const others: LockHolder = { ...holder, id: 'y', owner: 'api:2', slot: 0 };
  const wait = '(for 1500 ms more unless renewed). Try again later, ';

  test('a `LockHeldError` lists all holders, and its message names the given owner', () => {
    const kind = { mode: 'permits', permits: 2 } as const;
    const error = new LockHeldError(['k'], 'api:1', 1_500, { holders: [holder, others], kind });
    expect(error).toMatchObject({ owner: 'api:1', retryAfter: 1_500, holders: [holder, others] });
    expect(error.message).toContain(`"k" is held by api:1 ${wait}`);
    expect(new LockHeldError(['k'], 'api:1', 5).holders).toEqual([]);
  });

  test('a `LockHeldError` contains advice for methods with `@WithLock` and for callers of `LockService`', () => {
    expect(new LockHeldError(['k'], 'api:1', 1_500).message).toContain(
      `${wait}give \`retry\` a longer \`timeout\`, or, where one run is enough, use \`onBusy: 'skip'\` of \`@WithLock\` or ` +
        '`tryAcquire` of `LockService`.',
    );
  });

  test('a `LockHeldError` says "reserved for" a waiter if nobody holds the lock, and "held by" if the holders are unknown', () => {
    const kept = new LockHeldError(['k'], 'api:1', 1_500, { holders: [], kind: SHARED });
    expect(kept.message).toContain(
      `"k" is reserved for api:1, who came earlier and waits in the queue ${wait}`,
    );
    expect(kept.afterTrying({ attempts: 2 }).message).toContain('is reserved for api:1');
    expect(new LockHeldError(['k'], 'api:1', 1_500).message).toContain(`"k" is held by api:1 ${wait}`);
  });

  test.each<[string, LockHolder, LockKind, string]>([
    [
      'a call for an exclusive lock while a permit is held',
      holder,
      EXCLUSIVE,
      "with `permits`, which excludes a lock in the mode 'exclusive'",
    ],
    [
      'a call for a shared lock while a permit is held',
      holder,
      SHARED,
      "with `permits`, which excludes a lock in the mode 'shared'",
    ],
    [
      'a call for an exclusive lock while readers hold the key',
      { ...holder, mode: 'shared' },
      EXCLUSIVE,
      "in the mode 'shared', which excludes a lock in the mode 'exclusive'",
    ],
    [
      'a call for a permit while an exclusive lock is held',
      { ...holder, mode: 'exclusive' },
      { mode: 'permits', permits: 5 },
      "in the mode 'exclusive', which excludes a lock with `permits: 5`",
    ],
  ])(
    'the message of a `LockHeldError` names the conflicting kind of lock: %s',
    (_name, first, kind, text) => {
      const error = new LockHeldError(['k'], 'api:1', 1_500, { holders: [first], kind });
      expect(error.message).toContain(`"k" is held by api:1 ${text} ${wait}`);
      const later = error.afterTrying({ timeout: 50 });
      expect(later.message).toContain(`${text} (for 1500 ms more unless renewed). Gave up after 50 ms`);
      expect(later).toMatchObject({ holders: [first], limit: { timeout: 50 } });
    },
  );

  test.each<[string, LockMode, LockKind, boolean]>([
    ['an exclusive lock inside a permit', 'permits', EXCLUSIVE, false],
    ['a permit inside an exclusive lock', 'exclusive', { mode: 'permits', permits: 2 }, false],
    ['a shared lock inside a permit', 'permits', SHARED, false],
    ['a shared lock inside an exclusive one', 'exclusive', SHARED, true],
    ['a permit inside a permit', 'permits', { mode: 'permits', permits: 2 }, true],
  ])(
    'a `LockHeldError` advises `reentrant` only when the nested call could join the held lock: %s',
    (_name, mode, kind, helps) => {
      const error = new LockHeldError(['k'], 'api:1', 5, {
        holders: [{ ...holder, mode }],
        kind,
        heldByCaller: true,
      });
      expect(error.message.includes('Set `reentrant` to join')).toBe(helps);
      expect(error.message.includes('The two kinds of lock cannot join')).toBe(!helps);
    },
  );
});

describe('a LockHeldError for a nested call whose outer call holds the lock', () => {
  const permits: LockKind = { mode: 'permits', permits: 2 };

  test.each<[LockHolder['mode'], LockKind]>([
    ['exclusive', EXCLUSIVE],
    ['exclusive', SHARED],
    ['permits', permits],
  ])(
    'a `LockHeldError` advises `reentrant` when the nested call could join: outer mode %s, inner kind %j',
    (mode, kind) => {
      expect(messageUnder(mode, kind)).toContain('Set `reentrant` to join the held lock');
    },
  );

  test.each<[LockHolder['mode'], LockKind]>([
    ['permits', EXCLUSIVE],
    ['permits', SHARED],
    ['exclusive', permits],
  ])(
    'a `LockHeldError` does not advise `reentrant` when the nested call could not join: outer mode %s, inner kind %j',
    (mode, kind) => {
      const message = messageUnder(mode, kind);
      expect(message).not.toContain('Set `reentrant`');
      expect(message).toContain('give both the same `mode` or `permits`, with `reentrant`, or move');
    },
  );

  function messageUnder(mode: LockHolder['mode'], kind: LockKind): string {
    const holder = { id: 'x', owner: 'me', since: new Date(0), remaining: 5, fencingToken: 7, mode };
    return new LockHeldError(['k'], 'me', 5, { holders: [holder], kind, heldByCaller: true }).message;
  }
});

describe('a key or owner with line breaks or colour codes', () => {
  const KEY = 'a\n[Nest] ERROR all is lost \u001B[31m\u009B2J\u2028';
  const SHOWN = String.raw`a\u000a[Nest] ERROR all is lost \u001b[31m\u009b2J\u2028`;

  test.each<[string, Error]>([
    ['LockHeldError', new LockHeldError([KEY], KEY, 5)],
    ['LockHeldError of a tick', new LockHeldError([KEY], KEY, 5, { ranTick: 0 })],
    ['LockUnavailableError', new LockUnavailableError([KEY], 'none answered')],
    ['LockLostError', new LockLostError([KEY], 'it ended')],
  ])('the message of a %s escapes line breaks and colour codes', (_name, { message }) => {
    expect(message).toContain(`"${SHOWN}"`);
    expect(message).not.toMatch(/[\p{Cc}\u2028]/u);
  });

  test('the fields of a `LockHeldError` keep the key and the owner unescaped', () => {
    expect(new LockHeldError([KEY], KEY, 5)).toMatchObject({ keys: [KEY], owner: KEY });
  });
});
