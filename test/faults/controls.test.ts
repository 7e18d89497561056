import { describe, expect, test } from '@jest/globals';
import { rm } from 'node:fs/promises';
import { compile, type Patch } from './compile.js';
import { type FaultEvent, machineTime } from './events.js';
import { judge } from './judge.js';
import { play, type Scenario } from './scenario.js';
import { clients } from './scenarios/clients.js';
import { crashes } from './scenarios/crashes.js';

// A suite that never fails proves nothing. Here the library is broken on purpose, in a copy of its own, and the same
// scenarios and the same judge must find it.

const FOLDERS = ['lib', 'test/faults', 'test/support'];

function scenarioNamed(start: string): Scenario {
  const found = [...clients, ...crashes].find(({ name }) => name.startsWith(start));
  if (!found) throw new Error(`no scenario begins with "${start}"`);
  return found;
}

type Fault = 'overlaps' | 'tokenFaults';

/** Goes on until there is such a fault, and says what the judge finds at the end. */
async function playBroken(
  scenario: Scenario,
  fault: Fault,
  patches: readonly Patch[],
): Promise<readonly string[]> {
  const compiled = await compile(FOLDERS, patches);
  const enough = (events: readonly FaultEvent[]): boolean => {
    // The logs are read one after the other: of this moment not all of them may tell.
    const complete = events.filter(({ at }) => at < machineTime() - 500);
    return judge(complete, undefined, machineTime())[fault].length > 0;
  };
  try {
    return (await play(compiled, { ...scenario, enough }, 'short'))[fault];
  } finally {
    await rm(compiled, { recursive: true, force: true });
  }
}

describe('the judge flags', () => {
  test('a token that is not written back: J2, J3', async () => {
    const patch = {
      file: 'lib/redlock/tally.ts',
      find: 'return this.#agreeing >= this.quorum;',
      replace: 'return this.#agreeing >= 0;',
    };
    const scenario = scenarioNamed('counters of the nodes apart');
    await expect(playBroken(scenario, 'tokenFaults', [patch])).resolves.not.toEqual([]);
  });

  test('an id that is used for every attempt (S5): J1', async () => {
    const reused = {
      file: 'lib/core/lease.ts',
      find: 'readonly id = randomId();',
      replace: "readonly id = randomId().replaceAll(/./g, '0');",
    };
    // A node knows the id of what has ended and refuses it, so that after the first release nobody gets anything.
    const forgotten = {
      file: 'lib/stores/redis/scripts/acquire.ts',
      find: "answer = redis.error_reply('ERR this lease was stored before, and has ended')",
      replace: 'token = math.max(token, last + 1)',
    };
    const scenario = scenarioNamed('several waits side by side');
    await expect(playBroken(scenario, 'overlaps', [reused, forgotten])).resolves.not.toEqual([]);
  });

  test('a validity that is counted from the reply (S4): J1', async () => {
    const patch = {
      file: 'lib/redlock/acquire.ts',
      find: 'new HeldLock(lease, token, context, this.sent, request)',
      replace: 'new HeldLock(lease, token, context, now(), request)',
    };
    const scenario = scenarioNamed('slow replies to one client');
    await expect(playBroken(scenario, 'overlaps', [patch])).resolves.not.toEqual([]);
  });

  test('nodes that forget a held lock, without the guard (S12): J1', async () => {
    const scenario = scenarioNamed('a majority of the nodes forgets');
    const module = { ...scenario.client?.module, restartGuard: false as const };
    const unguarded = { ...scenario, client: { ...scenario.client, module } };
    await expect(playBroken(unguarded, 'overlaps', [])).resolves.not.toEqual([]);
  });
});

describe('a change that is not made is loud:', () => {
  test.each([
    ['the line is not there', { file: 'lib/core/lease.ts', find: 'no such line', replace: '' }],
    ['the line is there more than once', { file: 'lib/core/lease.ts', find: 'readonly', replace: '' }],
    ['the file is not there', { file: 'lib/redlock/no-such-file.ts', find: 'x', replace: '' }],
  ])('%s', async (_what, patch) => {
    await expect(compile(FOLDERS, [patch])).rejects.toThrow(patch.file);
  });
});
