import { expect } from '@jest/globals';

/** The values that `src/main.ts` of each consumer prints, besides the path of the package. */
export const outcome = {
  built: [{ name: 'daily', keys: ['report:daily'], held: true }, null],
  service: { second: 'refused', error: 'LOCK_HELD', third: 'taken' },
  keptByThread: true,
  open: { name: 'daily', locked: true },
  secret: 403,
  board: [200, 'text/javascript; charset=utf-8', true],
  fencing: true,
};

/** The parts of the outcome that only the application on NestJS 11 prints. */
export const onNest11 = {
  // One tick runs once on two instances.
  ticks: { 'schedule 5': 1, 'schedule 6': 1 },
  // NestJS 12 gives the same answers: see test/nest/sse.test.ts.
  events: { plain: [200, expect.stringContaining('event: error')], later: [500] },
  health: expect.objectContaining({ status: 'up', quorum: 1, voting: 1 }),
};
