import { expect, test } from '@jest/globals';
import type { LabEvent, RunRecord } from '../../lab/lab-event.js';
import { Recorder } from '../../lab/recorder.js';

function newRecorder(): Recorder {
  const record: RunRecord = {
    id: 1,
    scenario: 1,
    title: 'a run',
    strategy: 'none',
    ttl: 1_000,
    work: 1_000,
    instances: ['a', 'b'],
    store: 'redis',
    nodes: [],
    startedAt: 0,
    events: [],
  };
  return new Recorder(record, () => undefined);
}

const pushed = (who: string, ...jobs: string[]): LabEvent => ({ kind: 'pushed', who, at: 0, jobs });

test('Recorder counts a second push of one job as a duplicate, but not a new job for the same task', () => {
  const recorder = newRecorder();
  recorder.add(pushed('a', 'x#1', 'y#1'));
  recorder.add(pushed('b', 'y#1', 'y#2'));

  expect(recorder.record.events.map(({ duplicates }) => duplicates)).toEqual([[], ['y#1']]);
  expect(recorder.duplicates).toBe(1);
});

test('`Recorder.see` finds earlier events, unless they are before the given start position', async () => {
  const recorder = newRecorder();
  recorder.add(pushed('a', 'x#1'));
  const isPush = ({ kind }: LabEvent): boolean => kind === 'pushed';

  await expect(recorder.see('a push', isPush)).resolves.toMatchObject({ who: 'a' });
  const next = recorder.see('another push', isPush, recorder.length);
  recorder.add(pushed('b', 'z#1'));
  await expect(next).resolves.toMatchObject({ who: 'b' });
});
