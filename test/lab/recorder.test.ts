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

test('Recorder counts a job pushed twice as a duplicate, but not a second dispatch of its task', () => {
  const recorder = newRecorder();
  recorder.add(pushed('a', 'x#1', 'y#1'));
  recorder.add(pushed('b', 'y#1', 'y#2'));

  expect(recorder.record.events.map(({ duplicates }) => duplicates)).toEqual([[], ['y#1']]);
  expect(recorder.duplicates).toBe(1);
});

test('Recorder.see finds an event recorded before the call, unless a start position excludes it', async () => {
  const recorder = newRecorder();
  recorder.add(pushed('a', 'x#1'));
  const isPush = ({ kind }: LabEvent): boolean => kind === 'pushed';

  await expect(recorder.see('a push', isPush)).resolves.toMatchObject({ who: 'a' });
  const next = recorder.see('another push', isPush, recorder.length);
  recorder.add(pushed('b', 'z#1'));
  await expect(next).resolves.toMatchObject({ who: 'b' });
});
