import { beforeAll, expect, test } from '@jest/globals';
import { Pool } from 'pg';
import { readEnvironment } from '../../sample-app/config/environment.js';
import { createSchema } from '../../sample-app/database/schema.js';
import { TaskRepository } from '../../sample-app/tasks/task.repository.js';
import { startPostgresServer } from '../support/postgres-server.js';
import { START_TIMEOUT, stopList } from './services.js';

const stops = stopList();
let pool: Pool;
let tasks: TaskRepository;

/** The lock of the dispatcher with the token of its first holder, and with the token of its second holder. */
const [first, second] = [33, 34].map((fencingToken) => ({ keys: ['batch:task:list'], fencingToken }));

beforeAll(async () => {
  const { url: databaseUrl } = await startPostgresServer();
  pool = new Pool({ connectionString: databaseUrl });
  pool.on('error', () => undefined);
  await stops.add(() => pool.end());
  await createSchema(pool);
  const environment = readEnvironment({ DATABASE_URL: databaseUrl, REDIS_URLS: 'redis://127.0.0.1:6379' });
  tasks = new TaskRepository(pool, environment);
}, START_TIMEOUT);

async function submit(): Promise<string[]> {
  const [id = ''] = await tasks.insert([{ name: 'resize-photos', items: 1, msPerItem: 1, failures: 0 }]);
  return [id];
}

test('a stale dispatcher cannot mark tasks after its successor has read them', async () => {
  const ids = await submit();
  await expect(tasks.readDispatchable(10, first)).resolves.toMatchObject([{ id: ids[0], dispatches: 0 }]);
  await expect(tasks.readDispatchable(10, second)).resolves.toHaveLength(1);

  await expect(tasks.markEnqueued(ids, first)).rejects.toMatchObject({
    code: 'TOKEN_STALE',
    keys: ['batch:task:list'],
    token: 33,
    highest: 34,
  });

  await expect(tasks.find(ids[0] ?? '')).resolves.toMatchObject({ status: 'pending' });
  await tasks.markEnqueued(ids, second);
  await expect(tasks.readDispatchable(10, second)).resolves.toEqual([]);
});

// This control does what the dispatcher without a lock does.
test('without a lock, two dispatchers mark the same task (control)', async () => {
  const ids = await submit();
  await tasks.readDispatchable(10);
  await tasks.readDispatchable(10);

  await tasks.markEnqueued(ids);
  await tasks.markEnqueued(ids);

  const { rows } = await pool.query('select dispatches from tasks where id = $1', ids);
  expect(rows).toEqual([{ dispatches: 2 }]);
});
