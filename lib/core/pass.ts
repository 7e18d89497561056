import { createHash } from 'node:crypto';
import { badSecret, LONGEST_TIMER_MS } from './checks.js';
import { now } from './clock.js';
import { keysOf } from './keys.js';
import { EXCLUSIVE, type LockKind, MOST_PERMITS, SHARED } from './lock-mode.js';
import { randomId } from './random-id.js';
import type { Tick } from './tick.js';

/** The facts of a detached lock that the attaching process needs. */
export interface DetachedLock {
  readonly keys: readonly string[];
  readonly kind: LockKind;
  /** The slot of each key; only with permits. */
  readonly slots: readonly number[] | undefined;
  readonly fencingToken: number;
  readonly ttl: number;
  /** Milliseconds of `minHold` that were left at the detachment. */
  readonly minHold: number;
  /** `maxHold`, and the milliseconds of it that had passed at the detachment; `undefined` without a limit. */
  readonly maxHold: { readonly duration: number; readonly passed: number } | undefined;
  /** The tick that a release must store, with the life that was left at the detachment. */
  readonly tick: Tick | undefined;
  /** The name of the declared lock. */
  readonly lock: string | undefined;
  /** Readable name of the process that has detached the lock. */
  readonly owner: string;
  /** The time of the detachment, in milliseconds since 1970 by the clock of the detaching machine. */
  readonly at: number;
  /** The `keyPrefix` of the module, and the number of its nodes. */
  readonly keyPrefix: string;
  readonly nodes: number;
  /** The ids of the leases whose place the detached one has taken. A node that missed the detachment still keeps one. */
  readonly replaced: readonly string[];
}

/** A pass, and the id under which the nodes keep its lock. */
export interface Pass {
  readonly text: string;
  readonly id: string;
}

const VERSION = 'redlock1';

/** Longest text, in UTF-16 units: a lock of some 1,400 of the longest keys fits. */
export const LONGEST_PASS = 4_000_000;

const FORM = /^redlock1\.([\w-]+)\.([\w-]{16})$/;

const RULE = 'the text that `detach()` has returned';

/** The form of a pass: short names, because the text travels in a message of a queue. */
interface Content {
  /** 256 random bits: nobody makes the id of the record without them. */
  readonly s: string;
  readonly k: readonly string[];
  /** The kind of lock: 0 exclusive, -1 shared, else the number of permits. */
  readonly m: number;
  readonly n: readonly number[] | null;
  readonly t: number;
  readonly ttl: number;
  readonly h: number;
  readonly x: readonly [duration: number, passed: number] | null;
  readonly i: readonly [schedule: string, at: number, life: number, from: string] | null;
  readonly l: string | null;
  readonly o: string;
  readonly a: number;
  readonly p: string;
  readonly c: number;
  readonly r: readonly string[];
}

/**
 * Makes the pass of a lock. The id of the record is a hash of the whole text: people see ids on boards and in logs, and
 * must not be able to attach the lock with one. A pass that somebody has changed leads to no record.
 */
export function makePass(lock: DetachedLock): Pass {
  const made = now();
  const content: Content = {
    s: randomId(made) + randomId(made),
    k: lock.keys,
    m: lock.kind.mode === 'permits' ? lock.kind.permits : lock.kind.mode === 'shared' ? -1 : 0,
    n: lock.slots ?? null,
    t: lock.fencingToken,
    ttl: lock.ttl,
    h: lock.minHold,
    x: lock.maxHold ? [lock.maxHold.duration, lock.maxHold.passed] : null,
    i: lock.tick ? [lock.tick.schedule, lock.tick.at, lock.tick.life, lock.tick.from] : null,
    l: lock.lock ?? null,
    o: lock.owner,
    a: lock.at,
    p: lock.keyPrefix,
    c: lock.nodes,
    r: lock.replaced,
  };
  const body = Buffer.from(JSON.stringify(content)).toString('base64url');
  const text = `${VERSION}.${body}.${checkOf(body)}`;
  return { text, id: idOf(text) };
}

/**
 * Reads a pass. The text is a secret, so no message contains a part of it.
 *
 * @throws TypeError when the text is no pass, or is damaged
 */
export function readPass(text: unknown): Pass & DetachedLock {
  if (typeof text !== 'string' || text.length > LONGEST_PASS) throw bad(text);
  const [, body, check] = FORM.exec(text) ?? [];
  if (body === undefined) {
    const isOfOther = /^redlock\d+\./.test(text) && !text.startsWith(`${VERSION}.`);
    throw bad(text, isOfOther ? ': it is of another version of this package; update the older process' : '');
  }
  if (checkOf(body) !== check) throw bad(text, ': a part of the text is missing or was changed');
  let content: unknown;
  try {
    content = JSON.parse(Buffer.from(body, 'base64url').toString());
  } catch {
    throw bad(text, ': its content cannot be read');
  }
  if (!isContent(content)) throw bad(text, ': its content is not that of a detached lock');
  const { k, m, n, t, ttl, h, x, i, l, o, a, p, c, r } = content;
  return {
    text,
    id: idOf(text),
    keys: k,
    kind: m > 0 ? { mode: 'permits', permits: m } : m < 0 ? SHARED : EXCLUSIVE,
    slots: n ?? undefined,
    fencingToken: t,
    ttl,
    minHold: h,
    maxHold: x ? { duration: x[0], passed: x[1] } : undefined,
    tick: i ? { schedule: i[0], at: i[1], life: i[2], from: i[3] as Tick['from'] } : undefined,
    lock: l ?? undefined,
    owner: o,
    at: a,
    keyPrefix: p,
    nodes: c,
    replaced: r,
  };
}

/** The name that operators, and callers that are refused, see of a detached lock. */
export function ownerOfDetached(owner: string): string {
  return `${owner} (detached)`;
}

/** `true` if the id of a holder is that of a detached lock, which no process holds until it is attached. */
export function isDetachedId(id: string): boolean {
  return /^[g-v]{32}$/.test(id);
}

/** The id of a detached lock with these 32 hexadecimal digits. It has letters that the ids of other leases do not have. */
export function detachedIdOf(digits: string): string {
  return digits.replaceAll(/./g, (digit) => (Number.parseInt(digit, 16) + 16).toString(32));
}

/** The hexadecimal digits of the id of any lease. */
export function digitsOf(id: string): string {
  if (!isDetachedId(id)) return id;
  return id.replaceAll(/./g, (letter) => (Number.parseInt(letter, 32) - 16).toString(16));
}

/** 128 bits of a hash. A record with such an id is detached. */
function idOf(text: string): string {
  return detachedIdOf(createHash('sha256').update(text).digest('hex').slice(0, 32));
}

/** Finds damage by accident. */
function checkOf(body: string): string {
  return createHash('sha256').update(`check ${body}`).digest('base64url').slice(0, 16);
}

function bad(text: unknown, because = ''): TypeError {
  return badSecret('`pass`', RULE, text, because);
}

function isContent(value: unknown): value is Content {
  if (typeof value !== 'object' || value === null) return false;
  const { s, k, m, n, t, ttl, h, x, i, l, o, a, p, c, r } = value as Record<keyof Content, unknown>;
  return (
    isText(s) &&
    areKeys(k) &&
    isWhole(m, -1, MOST_PERMITS) &&
    (n === null) === !(m > 0) &&
    (n === null || (isListOf(n, (each) => isWhole(each, 0, MOST_PERMITS)) && n.length === k.length)) &&
    isWhole(t, 1) &&
    isWhole(ttl, 1, LONGEST_TIMER_MS) &&
    isWhole(h, 0, LONGEST_TIMER_MS) &&
    (x === null || (isListOf(x, (each) => isWhole(each, 0)) && x.length === 2)) &&
    (i === null || isTick(i)) &&
    (l === null || isText(l)) &&
    typeof o === 'string' &&
    isWhole(a, 0) &&
    typeof p === 'string' &&
    isWhole(c, 1) &&
    isListOf(r, isId)
  );
}

/** Only such ids go to the nodes, where a statement may join several to one text. */
function isId(value: unknown): value is string {
  return typeof value === 'string' && /^[0-9a-v]{32}$/.test(value);
}

function areKeys(value: unknown): value is string[] {
  if (!isListOf(value, isText)) return false;
  try {
    return keysOf(value).join('\n') === value.join('\n');
  } catch {
    return false;
  }
}

function isTick(value: unknown): boolean {
  if (!Array.isArray(value) || value.length !== 4) return false;
  const [schedule, at, life, from] = value as unknown[];
  return (
    isText(schedule) && isWhole(at, 0) && isWhole(life, 1) && (from === 'acquisition' || from === 'release')
  );
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

function isWhole(value: unknown, least: number, most = Number.MAX_SAFE_INTEGER): value is number {
  return Number.isInteger(value) && Number(value) >= least && Number(value) <= most;
}

function isListOf<T>(value: unknown, fits: (each: unknown) => each is T): value is T[];
function isListOf(value: unknown, fits: (each: unknown) => boolean): value is unknown[];
function isListOf(value: unknown, fits: (each: unknown) => boolean): boolean {
  return Array.isArray(value) && value.every(fits);
}
