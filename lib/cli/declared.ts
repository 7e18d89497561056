import type { DeclaredLock } from '../core/declared-lock.js';
import { LEADER_PREFIX } from '../core/keys.js';
import { type KeyPattern, keyPatterns } from '../core/key-pattern.js';
import type { LockInfo } from '../core/lock-info.js';
import { type LockPolicy, modeOf } from '../core/lock-policy.js';
import { nearNames } from '../core/near-names.js';
import type { RequestFor } from './command-line.js';
import { ExitCode } from './exit-code.js';
import { ageOf, duration, lockJson, lockTable, table } from './format.js';
import { printable, quoted } from '../core/printable.js';
import { locksOf } from './list.js';
import { readLocks } from './locks-file.js';
import type { Session } from './session.js';
import { print, printJson, type Terminal } from './terminal.js';
import { UsageError } from './usage-error.js';

/** A declared lock, and its held keys. */
interface Declared {
  readonly lock: DeclaredLock;
  readonly patterns: readonly KeyPattern[];
  readonly held: LockInfo[];
}

/** Prints the policy of each declared lock, and the number of its held keys. */
export async function listDeclared(
  session: Session,
  { locks: file, json }: RequestFor<'list-declared'>,
  terminal: Terminal,
): Promise<number> {
  const { all, others } = await stateOf(session, await readLocks(file));
  if (json) {
    const ofNone = others.length === 0 ? [] : [{ name: null, held: others.map(lockJson) }];
    printJson(terminal, [...all.map(declaredJson), ...ofNone]);
    return ExitCode.Ok;
  }
  const rows = all.map(({ lock, patterns, held }) => [
    lock.name,
    textOf(patterns),
    kindOf(lock.policy),
    ttlOf(lock.policy),
    patterns.length === 0 ? '?' : String(held.length),
    ageOf(oldestOf(held)),
    lock.team ?? '',
  ]);
  const heading = ['LOCK', 'KEYS', 'MODE', 'TTL', 'HELD', 'LONGEST', 'TEAM'];
  print(terminal, ...table(heading, rows, terminal.output.columns));
  if (others.length > 0) {
    print(terminal, '', 'Held keys that match no declared lock:');
    print(terminal, ...lockTable(others, terminal.output.columns));
  }
  return ExitCode.Ok;
}

/** Prints the policy of one declared lock, and the holders of its keys. */
export async function describe(
  session: Session,
  { name, locks: file, json }: RequestFor<'describe'>,
  terminal: Terminal,
): Promise<number> {
  const locks = await readLocks(file);
  const { all } = await stateOf(session, locks);
  const declared = all.find(({ lock }) => lock.name === name);
  if (!declared) {
    const near = nearNames(
      name,
      locks.map((lock) => lock.name),
    ).map((known) => quoted([known]));
    const hint = near.length > 0 ? `. Did you mean ${near.join(', ')}?` : '';
    throw new UsageError(`${file} declares no lock ${quoted([name])}${hint}`);
  }
  if (json) {
    printJson(terminal, declaredJson(declared));
    return ExitCode.Ok;
  }
  const { lock, patterns, held } = declared;
  print(terminal, ...policyLines(lock, patterns), '');
  if (patterns.length === 0)
    print(
      terminal,
      'The pattern of its keys is not known: inspect one of its keys with nestjs-redlock inspect KEY',
    );
  else if (held.length === 0) print(terminal, 'Nobody holds it.');
  else print(terminal, ...lockTable(held, terminal.output.columns));
  return ExitCode.Ok;
}

/**
 * Assigns each held key to a declared lock whose pattern fits the key: to the lock whose pattern has the most fixed
 * characters.
 */
async function stateOf(
  session: Session,
  locks: readonly DeclaredLock[],
): Promise<{ readonly all: readonly Declared[]; readonly others: readonly LockInfo[] }> {
  const all = locks.map((lock): Declared => ({ lock, patterns: keyPatterns(lock), held: [] }));
  const forms = all.flatMap((declared) => declared.patterns.map((pattern) => ({ declared, pattern })));
  const others: LockInfo[] = [];
  for (const info of await locksOf(session, '', undefined)) {
    if (!info.held || info.key.startsWith(LEADER_PREFIX)) continue;
    const fitting = forms.filter(({ pattern }) => pattern.fits(info.key));
    const nearest = Math.max(...fitting.map(({ pattern }) => pattern.length));
    const near = fitting.filter(({ pattern }) => pattern.length === nearest).map(({ declared }) => declared);
    // Two declared locks can have the same pattern: one for the readers of a key, and one for its writers.
    const declared = near.find(({ lock }) => modeOf(lock.policy) === info.mode) ?? near[0];
    (declared?.held ?? others).push(info);
  }
  return { all, others };
}

function policyLines(lock: DeclaredLock, patterns: readonly KeyPattern[]): string[] {
  const { name, team, about, policy } = lock;
  const { retry, renew, maxBlocked, minHold, maxHold, reentrant, onLost, release, onBusy } = policy;
  const { oncePerTick, instance } = policy;
  const rows: [string, string | undefined][] = [
    ['team', team],
    ['keys', textOf(patterns)],
    ['mode', kindOf(policy)],
    ['ttl', ttlOf(policy)],
    ['retry', retry === undefined ? undefined : JSON.stringify(retry)],
    ['renew', renew?.toString()],
    ['maxBlocked', maxBlocked === undefined ? undefined : duration(maxBlocked)],
    ['minHold', minHold === undefined ? undefined : duration(minHold)],
    ['maxHold', maxHold === undefined ? undefined : duration(maxHold)],
    ['reentrant', reentrant?.toString()],
    ['onLost', onLost],
    ['release', release],
    ['onBusy', typeof onBusy === 'function' ? 'a function' : onBusy],
    ['oncePerTick', oncePerTick?.toString()],
    ['instance', instance],
  ];
  const given = rows.flatMap(([what, value]) =>
    value === undefined ? [] : [`  ${what.padEnd(12)} ${printable(value)}`],
  );
  return [about === undefined ? quoted([name]) : `${quoted([name])}: ${printable(about)}`, ...given];
}

function textOf(patterns: readonly KeyPattern[]): string {
  return patterns.length === 0 ? 'from a function' : patterns.map(({ text }) => text).join(', ');
}

function kindOf(policy: LockPolicy): string {
  const { permits } = policy;
  return permits === undefined ? modeOf(policy) : `${permits} permits`;
}

function oldestOf(held: readonly LockInfo[]): Date | undefined {
  const times = held.flatMap(({ since }) => (since ? [since.getTime()] : []));
  return times.length === 0 ? undefined : new Date(Math.min(...times));
}

/** The declared ttl of the lock. The command does not know the module's default for a lock without a ttl. */
function ttlOf({ ttl }: LockPolicy): string {
  return ttl === undefined ? 'default' : duration(ttl);
}

function declaredJson({ lock, patterns, held }: Declared): object {
  const { name, team = null, about = null, policy } = lock;
  const onBusy = typeof policy.onBusy === 'function' ? 'function' : policy.onBusy;
  return {
    name,
    team,
    about,
    keys: patterns.map(({ text }) => text),
    policy: { ...policy, onBusy },
    held: held.map(lockJson),
  };
}
