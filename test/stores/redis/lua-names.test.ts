import { expect, test } from '@jest/globals';
import { readdirSync, readFileSync } from 'node:fs';
import { readMarks, straightPath } from '../../../lib/stores/redis/scripts/acquire-command.js';
import { Fragment } from '../../../lib/stores/redis/scripts/fragment.js';
import { identify } from '../../../lib/stores/redis/scripts/identity.js';
import { storeEvenIfFull } from '../../../lib/stores/redis/scripts/lua.js';
import { nameInstead } from '../../../lib/stores/redis/scripts/permits.js';
import type { Script } from '../../../lib/stores/redis/scripts/script.js';
import { findFree, freeSlot } from '../../../lib/stores/redis/scripts/slot-map.js';
import { luaNames } from '../../support/lua-names.js';

const FOLDER = 'lib/stores/redis/scripts';

/** Shared parts that a function makes. */
const MADE = {
  findFree: findFree('from'),
  freeSlot: freeSlot('map', 'slot', 1),
  identify: identify({ check: 'false', another: 'x ~= run', votes: 'y < 0' }, ['x', 'y']),
  nameInstead: nameInstead('last[1]'),
  readMarks: readMarks([4, 3]),
  storeEvenIfFull: storeEvenIfFull('name', 'record', 'keep + 1'),
  straightPath: straightPath({ keys: [4, 3], state: 'S', marked: true }),
  unmarked: straightPath({ keys: [2, 1], state: 'H' }),
};

async function exported(): Promise<[name: string, value: unknown][]> {
  const files = readdirSync(FOLDER).map((file) => file.replace('.ts', '.js'));
  const found: [string, unknown][] = [];
  for (const file of files) {
    const module = (await import(`../../../${FOLDER}/${file}`)) as Record<string, unknown>;
    found.push(...Object.entries(module));
  }
  return found;
}

function sorted(names: Iterable<string>): string[] {
  return [...names].toSorted();
}

test('each shared part of the scripts declares the locals that it needs and sets', async () => {
  const fragments = (await exported()).filter(([, value]) => value instanceof Fragment) as [
    string,
    Fragment,
  ][];
  fragments.push(...Object.entries(MADE));
  expect(fragments.length).toBeGreaterThan(30);
  const found = fragments.map(([name, fragment]) => {
    const { free, declared } = luaNames(String(fragment));
    return [name, sorted(free), sorted(declared)];
  });
  expect(found).toEqual(fragments.map(([name, { needs, sets }]) => [name, sorted(needs), sorted(sets)]));
});

test('each script declares all locals that it uses, also those of the parts that it shares', async () => {
  const scripts = (await exported()).filter(([, value]) => 'sha' in Object(value)) as [string, Script][];
  expect(scripts.length).toBeGreaterThan(20);
  const missing = scripts.map(([name, { lua }]) => [name, sorted(luaNames(lua).free)]);
  expect(missing).toEqual(scripts.map(([name]) => [name, []]));
});

/** The files that turn names into positions. */
const BY_POSITION = ['arguments.ts', 'fields.ts', 'marker.ts'];

/**
 * Positions in ARGV as numbers, and positions in KEYS except that of an only key; fields of a reply by their number, and
 * parts of a text by their positions.
 */
const NUMBERED = [
  /\bARGV\[[^\]]*\b\d/,
  /\bKEYS\[(?!1\])[^\]]*\b[2-9]/,
  /\b(?:reply|replies|answers?|found)\[\d/,
  /\bsub\([^()]*, \d\d?, \d\d\)/,
];

test('no script and no reader of a reply uses a number for the position of an argument or of a field', () => {
  const files = readdirSync(FOLDER).filter((file) => !BY_POSITION.includes(file));
  const found = files.flatMap((file) =>
    readFileSync(`${FOLDER}/${file}`, 'utf8')
      .split('\n')
      .filter((line) => !line.trim().startsWith('*') && NUMBERED.some((pattern) => pattern.test(line)))
      .map((line) => `${file}: ${line.trim()}`),
  );
  expect(found).toEqual([]);
});

test.each([
  ['local a = b\nlocal c = a', ['b'], ['a', 'c']],
  ['local a = a or b', ['a', 'b'], ['a']],
  ['for i = 1, n do local a = i end\nreturn a', ['a', 'n'], []],
  ['if a then local b = 1 else b = 2 end', ['a', 'b'], []],
  ["x = { y.z, 'w' } -- v", ['x', 'y'], []],
  ['while a do\n  do local b = a.c end\n  b = 1\nend', ['a', 'b'], []],
])('luaNames tells the free names and the locals of %j', (lua, free, declared) => {
  const names = luaNames(lua);
  expect(sorted(names.free)).toEqual(free);
  expect(sorted(names.declared)).toEqual(declared);
});
