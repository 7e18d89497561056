import type { KeyHolder, KeyState, KeyWaiter } from '../../core/ports.js';
import {
  type AcquisitionAnswer,
  type AskedAcquisition,
  type AskedRelease,
  type FoundWaiter,
  keyWaiterOf,
  type Named,
  stateOf,
  type BatchAnswer,
  type BatchRequest,
} from '../database/request.js';
import { OWNER_LENGTH } from './sql/procedure.js';

// Requests to the procedures of the database in JSON, and their results. The files in `sql/` describe them.

/** A call of a procedure: its name, and its arguments. */
export interface ProcedureCall {
  readonly name: string;
  readonly values: readonly unknown[];
}

/** The call that runs requests: the most frequent ones have procedures that read no JSON. */
export function callOf(keys: readonly string[], asked: BatchRequest): ProcedureCall {
  const { releases = [], extensions = [], acquisitions = [] } = asked;
  const [key = ''] = keys;
  const isOne = keys.length === 1 && extensions.length === 0 && releases.length + acquisitions.length === 1;
  const [acquisition] = acquisitions;
  if (isOne && acquisition && isPlain(acquisition)) {
    const { id, owner, since, ttl, deadline } = acquisition;
    const values = [
      Buffer.from(key),
      id,
      cut(owner),
      since,
      micros(ttl),
      micros(deadline),
      textOf(cutIn(acquisition)),
    ];
    return { name: 'lock', values };
  }
  const [release] = releases;
  if (isOne && release && isPlainRelease(release))
    return { name: 'unlock', values: [Buffer.from(key), release.id, textOf(release)] };
  const extended = timesOf(extensions);
  const parts = extensions.flatMap(({ id, keys: own, ttl, slots }, i) =>
    own.map((k, index) => ({
      ...{ i, n: own.length, id, k, ttl },
      ...(slots ? { slot: slots[index] } : {}),
      ...(extended.get(k) === 1 ? {} : SEVERAL),
    })),
  );
  const lists = [
    releases.map((each) => ({ ...cutIn(each), ...(isPlainRelease(each) ? PLAIN : {}) })),
    parts,
    plainOnes(acquisitions),
  ];
  return {
    name: 'turn',
    values: [textOf(sorted(keys)), ...lists.map((list) => (list.length === 0 ? null : textOf(list)))],
  };
}

/** `true` for an exclusive lock without a tick, a next waiter or a proposal. */
function isPlain({ mode, schedule, next, proposal = 0 }: AskedAcquisition): boolean {
  return mode === 'exclusive' && schedule === undefined && next === undefined && proposal === 0;
}

function isPlainRelease({ keys, keep, schedule }: AskedRelease): boolean {
  return keys.length === 1 && keep === 0 && schedule === undefined;
}

/** Marks a request that the procedure may run together with others. */
const PLAIN = { plain: 1 };

/**
 * Marks the plain acquisitions. An acquisition is not plain if another one wants the same key, because the first one in
 * the order gets it.
 */
function plainOnes(acquisitions: readonly AskedAcquisition[]): object[] {
  const wanted = timesOf(acquisitions);
  return acquisitions.map((each) => {
    const { keys } = each;
    const isMarked = keys.length === 1 && isPlain(each) && wanted.get(keys[0] ?? '') === 1;
    return { ...cutIn(each), ...(isMarked ? PLAIN : {}) };
  });
}

/** Marks an extension of a key that others extend, too. */
const SEVERAL = { several: 1 };

/** Counts the requests for each key. */
function timesOf(requests: readonly { readonly keys: readonly string[] }[]): ReadonlyMap<string, number> {
  const times = new Map<string, number>();
  for (const { keys } of requests) for (const key of keys) times.set(key, (times.get(key) ?? 0) + 1);
  return times;
}

/** The text of a JSON argument. */
export function textOf(value: object): string {
  return JSON.stringify(value);
}

/** Bytes of a statement for each key in addition to the key itself: an extension has an object for each key. */
const BYTES_BESIDE_KEY = 128;

/** Most bytes that a key takes in a statement, which contains it twice, in JSON. */
export const MOST_BYTES_OF_KEY = 2 * 6 * 2_048 + BYTES_BESIDE_KEY;

/** Bytes of a statement without keys: names, numbers, the owner. */
const OTHER_BYTES = 4_096;

/** The length in bytes of a statement with a request for these keys. */
export function lengthOfStatement(keys: readonly string[]): number {
  return OTHER_BYTES + keys.length * BYTES_BESIDE_KEY + 2 * Buffer.byteLength(textOf(keys));
}

/** A character whose place in the order of UTF-16 can differ from that in the order of bytes. */
const UNLIKE_BYTES = /[\uD800-\uFFFF]/;

/** The order in which all processes lock the rows of several keys: that of their bytes. */
export function sorted(keys: readonly string[]): string[] {
  // Without such characters the order is the same, and took an eighth of the time.
  if (!keys.some((key) => UNLIKE_BYTES.test(key))) return keys.toSorted();
  return keys
    .map((key) => Buffer.from(key))
    .toSorted(Buffer.compare)
    .map(String);
}

/** The stored part of an owner's name. */
export function cut(owner: string): string {
  return owner.length <= OWNER_LENGTH ? owner : [...owner].slice(0, OWNER_LENGTH).join('');
}

/** A request as the procedures read it: with the stored part of names, and 1 and 0 for `true` and `false`. */
function cutIn<Request extends AskedAcquisition | AskedRelease>(request: Request): object {
  const {
    owner,
    waiter_owner: waiting,
    ordered,
    exactly,
  } = request as Partial<Pick<AskedAcquisition, 'owner' | 'waiter_owner' | 'ordered' | 'exactly'>>;
  return {
    ...request,
    ...(owner === undefined ? {} : { owner: cut(owner) }),
    ...(waiting === undefined ? {} : { waiter_owner: cut(waiting) }),
    ...(ordered === undefined ? {} : { ordered: Number(ordered) }),
    ...(exactly === undefined ? {} : { exactly: Number(exactly) }),
  };
}

/** Microseconds, for a parameter in place of JSON. */
export function micros(milliseconds: number): number {
  return Math.round(milliseconds * 1_000);
}

/** An answer of `turn`, `lock` or `unlock`. */
interface Answer {
  readonly at: number;
  readonly waited?: readonly number[];
  readonly held?: readonly number[];
  readonly acquired?: readonly (readonly [number, AnsweredAcquisition])[];
}

/** The answer of `acquire`. */
interface AnsweredAcquisition extends Omit<AcquisitionAnswer, 'holder' | 'others'> {
  readonly holders?: readonly Named[];
  readonly several?: boolean;
}

export function answerOf(
  text: string,
  { releases = [], extensions = [], acquisitions = [] }: BatchRequest,
): BatchAnswer {
  const { at, waited = [], held = [], acquired = [] } = JSON.parse(text) as Answer;
  const [hasWaiters, kept, answers] = [new Set(waited), new Set(held), new Map(acquired)];
  return {
    at,
    released: releases.map((_, i) => hasWaiters.has(i)),
    extended: extensions.map((_, i) => kept.has(i)),
    acquired: acquisitions.map((_, i) => {
      const { holders = [], several, ...rest } = answers.get(i) ?? {};
      const [holder, ...others] = holders;
      return { ...rest, ...(holder ? { holder } : {}), ...(several ? { others } : {}) };
    }),
  };
}

/** A holder as the statement for reading selects it. */
interface FoundHolder extends Named {
  readonly i: number;
  readonly mode: KeyHolder['mode'];
  readonly permits: number;
}

/** The states of as many keys as were asked for. */
export function statesOf(text: string, count: number): KeyState[] {
  const all = groups(JSON.parse(text) as FoundHolder[], count);
  return all.map((holders) => {
    const [first] = holders;
    return stateOf(first ? { mode: first.mode, permits: first.permits, holders } : null);
  });
}

/** The queues of as many keys as were asked for. */
export function queuesOf(text: string, count: number): KeyWaiter[][] {
  const all = groups(JSON.parse(text) as (FoundWaiter & { readonly i: number })[], count);
  return all.map((queue) => queue.map(keyWaiterOf));
}

/** Arranges rows by the number of their key, from 1 on. */
function groups<Row extends { readonly i: number }>(rows: readonly Row[], count: number): Row[][] {
  const all = Array.from({ length: count }, (): Row[] => []);
  for (const row of rows) all[row.i - 1]?.push(row);
  return all;
}
