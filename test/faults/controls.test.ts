import { describe, expect, test } from '@jest/globals';
import { rm } from 'node:fs/promises';
import { compile, type Patch } from './compile.js';
import { play, type Scenario } from './scenario.js';
import { clients } from './scenarios/clients.js';
import { crashes } from './scenarios/crashes.js';
import type { Outcome } from './stage.js';

// A suite that never fails proves nothing. Here the library is broken on purpose, in a copy of its own, and the same
// scenarios and the same judge must find it.

const FOLDERS = ['lib', 'test/faults', 'test/support'];

function scenarioNamed(start: string): Scenario {
  const found = [...clients, ...crashes].find(({ name }) => name.startsWith(start));
  if (!found) throw new Error(`no scenario begins with "${start}"`);
  return found;
}

async function playBroken(scenario: Scenario, patches: readonly Patch[]): Promise<Outcome> {
  const compiled = await compile(FOLDERS, patches);
  try {
    return await play(compiled, scenario, 'short');
  } finally {
    await rm(compiled, { recursive: true, force: true });
  }
}

describe('the judge flags', () => {
  test('a token that is not written back: J2, J3', async () => {
    const patch = {
      file: 'lib/redlock/attempts.ts',
      find: 'if (agreeing >= quorum) return token;',
      replace: 'if (agreeing >= 0) return token;',
    };
    const { tokenFaults } = await playBroken(scenarioNamed('counters of the nodes apart'), [patch]);
    expect(tokenFaults).not.toEqual([]);
  }, 60_000);

  test('an id that is used for every attempt (S5): J1', async () => {
    const patch = {
      file: 'lib/ioredis/lock-value.ts',
      find: 'return `${id}:${since.toString(36)}:${owner}`;',
      replace: "return `${'0'.repeat(32)}:0:x`;",
    };
    const { overlaps } = await playBroken(scenarioNamed('several waits side by side'), [patch]);
    expect(overlaps).not.toEqual([]);
  }, 60_000);

  test('a validity that is counted from the reply (S4): J1', async () => {
    const patch = {
      file: 'lib/redlock/attempts.ts',
      find: 'new HeldLock(claim, token, this.#upkeep, sent,',
      replace: 'new HeldLock(claim, token, this.#upkeep, now(),',
    };
    const { overlaps } = await playBroken(scenarioNamed('slow replies to one client'), [patch]);
    expect(overlaps).not.toEqual([]);
  }, 60_000);

  test('nodes that forget a held lock, without the guard (S12): J1', async () => {
    const scenario = scenarioNamed('a majority of the nodes forgets');
    const module = { ...scenario.client?.module, restartGuard: false as const };
    const { overlaps } = await playBroken({ ...scenario, client: { ...scenario.client, module } }, []);
    expect(overlaps).not.toEqual([]);
  }, 60_000);
});

describe('a change that is not made is loud:', () => {
  test.each([
    ['the line is not there', { file: 'lib/redlock/claim.ts', find: 'no such line', replace: '' }],
    ['the line is there more than once', { file: 'lib/redlock/claim.ts', find: 'readonly', replace: '' }],
    ['the file is not there', { file: 'lib/redlock/no-such-file.ts', find: 'x', replace: '' }],
  ])('%s', async (_what, patch) => {
    await expect(compile(FOLDERS, [patch])).rejects.toThrow(patch.file);
  });
});
