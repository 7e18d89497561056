import { describe, expect, test } from '@jest/globals';
import { bundle, type Patch } from '../support/bundle.js';
import { type FaultEvent, machineTime } from './events.js';
import { judge } from './judge.js';
import { play, PROGRAMS, type Scenario } from './scenario.js';
import { clients } from './scenarios/clients.js';
import { crashes } from './scenarios/crashes.js';
import { kinds } from './scenarios/kinds.js';

// A suite that never fails proves nothing. These tests break a copy of the library on purpose. The scenarios and the
// judge of the fault tests must find each fault.

function scenarioNamed(start: string): Scenario {
  const found = [...clients, ...crashes, ...kinds].find(({ name }) => name.startsWith(start));
  if (!found) throw new Error(`no scenario begins with "${start}"`);
  return found;
}

type Fault = 'overlaps' | 'tokenFaults';

/**
 * Plays the scenario until the judge finds a fault of this kind whose text matches `saying`. Returns all such faults of
 * the whole play.
 */
async function playBroken(
  scenario: Scenario,
  fault: Fault,
  patches: readonly Patch[],
  saying = /./,
): Promise<readonly string[]> {
  const ofThem = (faults: readonly string[]): string[] => faults.filter((each) => saying.test(each));
  const programs = await bundle(PROGRAMS, patches);
  const enough = (events: readonly FaultEvent[], until: number): boolean => {
    // A process may stall between an event and its line in the log.
    const complete = events.filter(({ at }) => at < until - 500);
    return ofThem(judge(complete, undefined, machineTime())[fault]).length > 0;
  };
  return ofThem((await play(programs, { ...scenario, enough }, 'short'))[fault]);
}

const NOT_WRITTEN_BACK: Patch = {
  file: 'lib/redlock/tally.ts',
  find: 'return this.#agreeing >= this.quorum;',
  replace: 'return this.#agreeing >= 0;',
};

const COUNTED_FROM_REPLY: Patch = {
  file: 'lib/redlock/acquire.ts',
  find: 'new HeldLock(lease, token, context, validFrom, taken, request)',
  replace: 'new HeldLock(lease, token, context, now(), 0, request)',
};

const LONG = process.env['FAULTS'] === 'long';

describe('with a broken library', () => {
  test('the judge finds a wrong token (J2 or J3) when tokens are not written to a quorum', async () => {
    const scenario = scenarioNamed('nodes with different token counters');
    await expect(playBroken(scenario, 'tokenFaults', [NOT_WRITTEN_BACK])).resolves.not.toEqual([]);
  });

  test('the judge finds too many holders (J1) when grants of different slots count towards one quorum (S20)', async () => {
    const patches = [
      {
        file: 'lib/redlock/tally.ts',
        find: 'return this.#grants ? this.#sameSlots : this.granted;',
        replace: 'return this.granted;',
      },
      // With this change, grants of other slots also count towards the quorum.
      {
        file: 'lib/redlock/acquire.ts',
        find: 'if (tally.slots) this.lease.slots = tally.slots;',
        replace: '',
      },
    ];
    const scenario = scenarioNamed('permits, each of three clients');
    const threeOfTwo = /held at the same time, of 2 permits/;
    await expect(playBroken(scenario, 'overlaps', patches, threeOfTwo)).resolves.not.toEqual([]);
  });

  test('the judge finds a reader beside a writer (J1) when one node is a quorum (S21)', async () => {
    const patch = {
      file: 'lib/redlock/quorum.ts',
      find: 'return Math.floor(nodeCount / 2) + 1;',
      replace: 'return Math.min(nodeCount, 1);',
    };
    const scenario = scenarioNamed('readers and writers, each of three clients');
    const beside = /\((shared|exclusive), .* beside .* \((?!\1)(shared|exclusive), /;
    await expect(playBroken(scenario, 'overlaps', [patch], beside)).resolves.not.toEqual([]);
  });

  test('the judge finds a writer beside a reader (J1) when a reader shortens the ttl of other readers (S23)', async () => {
    const patch = {
      file: 'lib/stores/redis/scripts/acquire-shared.ts',
      find: 'local record, isLast, beside = records[i], left < ttl, besides[i]',
      replace: 'local record, isLast, beside = records[i], true, besides[i]',
    };
    const scenario = scenarioNamed('shared locks and permits with');
    const beside = /exclusive, .* beside .*shared, /;
    await expect(playBroken(scenario, 'overlaps', [patch], beside)).resolves.not.toEqual([]);
  });

  test('the judge finds an overlap (J1) when all attempts use one id (S5)', async () => {
    const reused = {
      file: 'lib/core/lease.ts',
      find: 'this.id = id ?? randomId(made);',
      replace: "this.id = randomId(made).replaceAll(/./g, '0');",
    };
    // A node refuses an id whose lock has ended. Without this change, no client would get a lock after the first
    // release.
    const forgotten = {
      file: 'lib/stores/redis/scripts/acquire.ts',
      find: "answer = redis.error_reply('ERR this lock was stored before, and has ended')",
      replace: 'token = math.max(token, last + 1)',
    };
    const scenario = scenarioNamed('several callers in each process');
    await expect(playBroken(scenario, 'overlaps', [reused, forgotten])).resolves.not.toEqual([]);
  });

  test('the judge finds an overlap (J1) when the validity is counted from the reply (S4)', async () => {
    const scenario = scenarioNamed('slow replies to one client');
    await expect(playBroken(scenario, 'overlaps', [COUNTED_FROM_REPLY])).resolves.not.toEqual([]);
  });

  test('the judge finds an overlap (J1) when nodes without a restart guard forget a held lock (S12)', async () => {
    const scenario = scenarioNamed('a majority of the nodes forgets');
    const module = { ...scenario.client?.module, restartGuard: false as const };
    const unguarded = { ...scenario, client: { ...scenario.client, module } };
    await expect(playBroken(unguarded, 'overlaps', [])).resolves.not.toEqual([]);
  });

  // Only the long form plays the scenarios of these two.
  if (LONG) {
    test('the judge finds a wrong token (J2 or J3) when tokens of slots are not written to a quorum', async () => {
      const scenario = scenarioNamed('permits, nodes with different token counters');
      await expect(playBroken(scenario, 'tokenFaults', [NOT_WRITTEN_BACK])).resolves.not.toEqual([]);
    });

    test('the judge finds an overlap (J1) when the validity of a reader is counted from the reply (S4)', async () => {
      const scenario = scenarioNamed('slow replies to a reader');
      await expect(playBroken(scenario, 'overlaps', [COUNTED_FROM_REPLY])).resolves.not.toEqual([]);
    });
  }
});

describe('bundle', () => {
  test.each([
    ['whose line does not exist', { file: 'lib/core/lease.ts', find: 'no such line', replace: '' }],
    ['whose line occurs more than once', { file: 'lib/core/lease.ts', find: 'readonly', replace: '' }],
    ['whose file does not exist', { file: 'lib/redlock/no-such-file.ts', find: 'x', replace: '' }],
  ])('`bundle` throws for a patch %s', async (_what, patch) => {
    await expect(bundle(PROGRAMS, [patch])).rejects.toThrow(patch.file);
  });
});
