import { createHash } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import { EXCLUSIVE, SHARED } from '../../lib/core/lock-mode.js';
import { type DetachedLock, isDetachedId, makePass, readPass } from '../../lib/core/pass.js';
import { randomId } from '../../lib/core/random-id.js';
import { now } from '../../lib/core/clock.js';

const LOCK: DetachedLock = {
  keys: ['order:7', 'order:ü'],
  kind: EXCLUSIVE,
  slots: undefined,
  fencingToken: 1_880_000_000_000_000,
  ttl: 10_000,
  minHold: 0,
  maxHold: undefined,
  tick: undefined,
  lock: undefined,
  owner: 'api-1',
  at: 1_700_000_000_000,
  keyPrefix: 'shop:',
  nodes: 3,
  replaced: ['0123456789abcdef0123456789abcdef'],
};

const LOCKS: [string, DetachedLock][] = [
  ['an exclusive lock', LOCK],
  ['a shared lock', { ...LOCK, kind: SHARED }],
  ['permits', { ...LOCK, kind: { mode: 'permits', permits: 5 }, slots: [4, 0] }],
  [
    'a declared lock with minHold, maxHold and a tick',
    {
      ...LOCK,
      lock: 'orders',
      minHold: 250,
      maxHold: { duration: 60_000, passed: 20 },
      tick: { schedule: 'daily', at: 1_700_000_000_000, life: 5_000, from: 'release' },
    },
  ],
];

/** Makes a text of the content, with a right check, as somebody who knows the format can. */
function forged(change: (content: Record<string, unknown>) => unknown): string {
  const [version, body = ''] = makePass(LOCK).text.split('.');
  const content = JSON.parse(Buffer.from(body, 'base64url').toString()) as Record<string, unknown>;
  change(content);
  const changed = Buffer.from(JSON.stringify(content)).toString('base64url');
  return `${version}.${changed}.${checkOf(changed)}`;
}

function checkOf(body: string): string {
  return createHash('sha256').update(`check ${body}`).digest('base64url').slice(0, 16);
}

describe('a pass', () => {
  test.each(LOCKS)('contains all facts of %s', (_, lock) => {
    const { text, id } = makePass(lock);
    expect(readPass(text)).toEqual({ ...lock, text, id });
  });

  test('differs for each detachment, and leads to an id of 128 bits that looks like no other id', () => {
    const [one, other] = [makePass(LOCK), makePass(LOCK)];
    expect(one.id).not.toBe(other.id);
    expect(one.id).toMatch(/^[g-v]{32}$/);
    expect([isDetachedId(one.id), isDetachedId(randomId(now()))]).toEqual([true, false]);
  });

  test('cannot be made from the id of its record, which operators see, and leads nowhere when it is changed', () => {
    const { text, id } = makePass(LOCK);
    expect(text).not.toContain(id);
    expect(Buffer.from(text.split('.')[1]!, 'base64url').toString()).not.toContain(id);
    expect(readPass(forged((content) => (content.t = 1_890_000_000_000_000))).id).not.toBe(id);
  });

  test('that is damaged is refused with the reason, and the message does not show it', () => {
    const { text } = makePass(LOCK);
    const [version, body = '', check] = text.split('.');
    const damaged: [unknown, string][] = [
      [undefined, 'undefined'],
      [7, '7'],
      ['', "''"],
      ['order:7', 'a string'],
      [`${text} `, 'a string'],
      [text.slice(0, -1), 'a string'],
      [`redlock2.${body}.${check}`, 'of another version of this package'],
      [`${version}.${body.slice(4)}.${check}`, 'missing or was changed'],
      [`${version}.${body.slice(0, 40)}A${body.slice(41)}.${check}`, 'missing or was changed'],
      [`${version}.AAAA.${checkOf('AAAA')}`, 'cannot be read'],
      ['x'.repeat(5_000_000), 'a string'],
    ];
    for (const [value, because] of damaged) {
      const refused = (): unknown => readPass(value);
      expect(refused).toThrow(TypeError);
      expect(refused).toThrow(because);
      expect(refused).toThrow(/^Expected `pass` to be the text that `detach\(\)` has returned, got /);
      expect(refused).not.toThrow(body.slice(10, 30));
    }
  });

  test.each<[string, (content: Record<string, unknown>) => unknown]>([
    ['no secret', (content) => delete content.s],
    ['no keys', (content) => (content.k = [])],
    ['an empty key', (content) => (content.k = ['', 'a'])],
    ['keys that are not sorted', (content) => (content.k = ['b', 'a'])],
    ['a key that is no text', (content) => (content.k = [{}])],
    ['an unknown kind', (content) => (content.m = -2)],
    ['permits without slots', (content) => (content.m = 3)],
    ['slots without permits', (content) => (content.n = [1, 1])],
    ['a token that is no whole number', (content) => (content.t = 1.5)],
    ['a ttl longer than a timer', (content) => (content.ttl = 2 ** 31)],
    ['a maxHold of one number', (content) => (content.x = [1])],
    ['a tick of another form', (content) => (content.i = ['daily', 1, 1, 'never'])],
    ['another type of owner', (content) => (content.o = null)],
    ['another type of prefix', (content) => (content.p = 5)],
    ['no nodes', (content) => (content.c = 0)],
    ['an id that is no text', (content) => (content.r = [7])],
    ['two ids in one', (content) => (content.r = [`${LOCK.replaced[0]},${LOCK.replaced[0]}`])],
  ])('with %s is refused', (_, change) => {
    expect(() => readPass(forged(change))).toThrow('its content is not that of a detached lock');
  });
});
