import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from '@jest/globals';
import { locateBinaries } from '../../sample-app/demo/embedded-postgres.js';
import { hasMysql, startMysqlServer } from '../support/mysql-server.js';
import { startPostgresServer } from '../support/postgres-server.js';
import { startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { buildExamples, ExampleProcess } from './example.js';

const NAMES = ['cron', 'http', 'mysql', 'postgresql', 'queue'];

let folder: string;
const folderOf = (name: string): string => join(folder, name);

beforeAll(async () => {
  folder = await buildExamples(NAMES);
});

test('these tests build each folder in `examples`', async () => {
  const entries = await readdir('examples', { withFileTypes: true });
  expect(entries.filter((each) => each.isDirectory()).map(({ name }) => name)).toEqual(NAMES);
});

/**
 * Starts examples with a tick each second, and counts their runs. The count lasts so long that two runs for each tick
 * would be more than the largest possible number of ticks. A busy machine delays or drops runs, so there can be fewer
 * runs than ticks.
 *
 * @returns the runs, and the largest possible number of ticks since the start
 */
async function countRuns(
  start: () => readonly ExampleProcess[],
): Promise<{ readonly runs: number; readonly ticks: number }> {
  const began = performance.now();
  const elapsed = (): number => performance.now() - began;
  const examples = start();
  await Promise.all(examples.map((each) => each.printed(/^started$/)));
  const enough = 2 * elapsed() + 6_000;
  const runs = (): number => examples.flatMap((each) => each.matching(/^instance .* ran the job$/)).length;
  await until(() => elapsed() > enough && runs() >= 3, enough + 60_000);
  const counted = runs();
  // A timer may fire a little before its second.
  const ticks = Math.ceil(elapsed() / 1_000) + 1;
  await Promise.all(examples.map((each) => each.interrupt()));
  return { runs: counted, ticks };
}

test('the cron example runs no tick twice with two schedules in memory', async () => {
  const { runs, ticks } = await countRuns(() => [new ExampleProcess(folderOf('cron'))]);
  expect(runs).toBeLessThanOrEqual(ticks);
});

test('the cron example runs no tick twice in two processes with one Redis', async () => {
  const redis = await startRedis();
  const env = { REDIS_URL: redis.url };
  const { runs, ticks } = await countRuns(() => [1, 2].map(() => new ExampleProcess(folderOf('cron'), env)));
  expect(runs).toBeLessThanOrEqual(ticks);
});

test('the http example answers 409 to a concurrent payment, and "in progress" to a concurrent report', async () => {
  const example = new ExampleProcess(folderOf('http'), { PORT: '0' });
  await example.printed(/^listens on /);
  const [line = ''] = example.matching(/^listens on /);
  const orders = `${line.replace('listens on ', '')}/orders`;
  const pay = (id: number): Promise<Response> => fetch(`${orders}/${id}/payment`, { method: 'POST' });
  const answers = await Promise.all([pay(7), pay(7), pay(8)]);
  expect(answers.map(({ status }) => status).toSorted()).toEqual([201, 201, 409]);
  expect(answers[2]?.status).toBe(201);
  expect(answers.find(({ status }) => status === 409)?.headers.get('retry-after')).toMatch(/^\d+$/);

  const reports = await Promise.all([fetch(`${orders}/report`), fetch(`${orders}/report`)]);
  const bodies = await Promise.all(reports.map((each) => each.json() as Promise<{ status: string }>));
  expect(bodies.map(({ status }) => status).toSorted()).toEqual(['done', 'in progress']);
  await example.interrupt();
});

test('the queue example runs the jobs of one customer one after the other', async () => {
  const redis = await startRedis({ args: ['--maxmemory-policy', 'noeviction'] });
  const example = new ExampleProcess(folderOf('queue'), { REDIS_URL: redis.url });
  await example.printed(/: ends invoice \d$/, 6);
  for (const customer of ['Ada', 'Ben']) {
    const steps = example.matching(new RegExp(`^${customer}: `));
    const begun = steps.filter((_, index) => index % 2 === 0);
    const ended = steps.filter((_, index) => index % 2 === 1);
    expect(steps).toHaveLength(6);
    expect(begun).toEqual(ended.map((line) => line.replace('ends', 'begins')));
  }
  await example.interrupt();
});

const hasPostgres = await locateBinaries().then(
  () => true,
  () => {
    process.stderr.write(
      'Skipped: no PostgreSQL for the example; `npm ci` installs one if its build exists for the platform.\n',
    );
    return false;
  },
);

const LINES = [
  '20 deposits of 1 at the same time: the balance is 20',
  'the late write was refused: TOKEN_STALE',
  'the balance is 21',
];

(hasPostgres ? describe : describe.skip)('the postgresql example', () => {
  test('the postgresql example loses no deposit, and refuses a late write', async () => {
    const server = await startPostgresServer();
    const example = new ExampleProcess(folderOf('postgresql'), { DATABASE_URL: server.url });
    await example.end();
    expect(example.lines).toEqual(LINES);
  });
});

(hasMysql() ? describe : describe.skip)('the mysql example', () => {
  test('the mysql example loses no deposit, and refuses a late write', async () => {
    const server = await startMysqlServer();
    const example = new ExampleProcess(folderOf('mysql'), { DATABASE_URL: server.uri });
    await example.end();
    expect(example.lines).toEqual(LINES);
  });
});
