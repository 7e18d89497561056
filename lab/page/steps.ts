import type { LabEvent } from '../lab-event.js';

export interface Step {
  readonly text: string;
  readonly bad: boolean;
}

/** Describes an event in one line; `undefined` for events that are too frequent. */
export function describe(event: LabEvent): Step | undefined {
  const { who } = event;
  const step = (text: string, bad = false): Step => ({ text: `${who} ${text}`, bad });
  switch (event.kind) {
    case 'acquired': {
      const late = event.asked > 500 ? `, ${(event.asked / 1_000).toFixed(1)} s after it asked` : '';
      if (event.locked === false) return step('begins without a lock');
      const slot = event.slot === undefined ? '' : `, slot ${event.slot}`;
      const token = event.token === undefined ? '' : `, fencing token ${event.token}`;
      return step(`has the lock${slot}${token}${late}`);
    }
    case 'asking':
      return step('asks for the lock as a writer');
    case 'read':
      return event.tasks > 0 ? step(`has read ${event.tasks} waiting tasks and works on them`) : undefined;
    case 'writing':
      return step('marks the tasks');
    case 'pushed': {
      const copies = event.duplicates?.length ?? 0;
      return copies > 0
        ? step(`pushes ${event.jobs.length} jobs, ${copies} of them for the second time`, true)
        : step(`pushes ${event.jobs.length} jobs`);
    }
    case 'refused':
      return step('is refused by the database: a later holder has written');
    case 'lost':
      return step(`knows that its lock is lost: ${event.message}`);
    case 'unconfirmed':
      return step('could not renew its lock; it is still valid for a while');
    case 'failed':
      return step(`failed: ${event.message}`);
    case 'killed':
      return step('is killed', true);
    case 'paused':
      return step('is paused', true);
    case 'resumed':
      return step('is resumed');
    case 'node-killed':
      return step('is killed', true);
    case 'node-started':
      return step(event.empty ? 'is back, without its data' : 'is back, with its locks');
    case 'strategy':
      return { text: `the lock is now: ${event.strategy}`, bad: false };
    case 'settings':
      return { text: `from now on the ttl is ${event.ttl} ms, and a job takes ${event.work} ms`, bad: false };
    case 'note':
      return { text: event.text, bad: false };
    default:
      return undefined;
  }
}
