import { readdir } from 'node:fs/promises';
import { beforeAll, describe, expect, test } from '@jest/globals';
import { locateBinaries } from '../../sample-app/demo/embedded-postgres.js';
import { freePort } from '../support/free-port.js';
import { startPostgresServer } from '../support/postgres-server.js';
import { startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { buildExample, ExampleProcess, packForExamples } from './example.js';

const NAMES = ['cron', 'http', 'postgresql', 'queue'];

const folders = new Map<string, string>();
const folderOf = (name: string): string => folders.get(name) ?? '';

beforeAll(async () => {
  const tarball = await packForExamples();
  for (const name of NAMES) folders.set(name, await buildExample(name, tarball));
});

test('each example has a test', async () => {
  const entries = await readdir('examples', { withFileTypes: true });
  expect(entries.filter((each) => each.isDirectory()).map(({ name }) => name)).toEqual(NAMES);
});

const RAN = /^instance ([AB]) of process (\d+) ran the job$/;
/** From before the first of five ticks of a second to the fifth one, in ms. Without a lock, five runs take three ticks at most. */
const FIVE_TICKS = 3_900;

test('cron: two schedules in memory run each tick once', async () => {
  const example = new ExampleProcess(folderOf('cron'));
  await example.printed(/^started$/);
  const started = performance.now();
  await example.printed(RAN, 5);
  expect(performance.now() - started).toBeGreaterThan(FIVE_TICKS);
  await example.interrupt();
});

test('cron: two processes with a Redis run each tick once', async () => {
  const redis = await startRedis();
  const examples = [1, 2].map(() => new ExampleProcess(folderOf('cron'), { REDIS_URL: redis.url }));
  await Promise.all(examples.map((each) => each.printed(/^started$/)));
  const runs = (): number => examples.flatMap((each) => each.matching(RAN)).length;
  const [before, started] = [runs(), performance.now()];
  await until(() => runs() >= before + 5);
  expect(performance.now() - started).toBeGreaterThan(FIVE_TICKS);
  await Promise.all(examples.map((each) => each.interrupt()));
});

test('http: a second payment of an order answers 409, and a second report the result of onBusy', async () => {
  const port = await freePort();
  const example = new ExampleProcess(folderOf('http'), { PORT: String(port) });
  await example.printed(/^listens on /);
  const orders = `http://127.0.0.1:${port}/orders`;
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

test('queue: jobs of one customer do not overlap', async () => {
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
      'Skipped: no PostgreSQL for the example; `npm ci` installs one where there is a build.\n',
    );
    return false;
  },
);

(hasPostgres ? describe : describe.skip)('postgresql', () => {
  test('no deposit is lost, and a late write is refused', async () => {
    const server = await startPostgresServer();
    const example = new ExampleProcess(folderOf('postgresql'), { DATABASE_URL: server.url });
    await example.end();
    expect(example.lines).toEqual([
      '20 deposits of 1 at the same time: the balance is 20',
      'the late write was refused: TOKEN_STALE',
      'the balance is 21',
    ]);
  });
});
