import 'reflect-metadata';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { INestApplication } from '@nestjs/common';
import { type Client, Pool } from 'pg';
import { startApp } from '../support/nest-app.js';
import { startPostgresServer } from '../support/postgres-server.js';
import { startRedis } from '../support/redis-server.js';
import { Views, VIEWS } from './shards.js';

// This block closes its applications in `afterAll`. The clean-up of the test file stops the servers later.
describe('views of a page', () => {
  let client: Client;
  const apps: INestApplication[] = [];
  const pools: Pool[] = [];
  /** The shards that are written now. */
  const writing: number[] = [];
  /** The shards that two writers wrote at the same time. */
  const twice: number[] = [];
  /** The largest number of shards that were written at the same time. */
  let most = 0;

  beforeAll(async () => {
    const [redis, postgres] = await Promise.all([startRedis(), startPostgresServer()]);
    client = await postgres.client();
    await client.query(VIEWS);
    while (apps.length < 2) {
      const pool = new Pool({ connectionString: postgres.url, max: 20 });
      pools.push(pool);
      const watched = {
        query: async (sql: string, values: [string, number, number]) => {
          const [, shard] = values;
          if (writing.includes(shard)) twice.push(shard);
          writing.push(shard);
          most = Math.max(most, writing.length);
          try {
            return await pool.query(sql, values);
          } finally {
            writing.splice(writing.indexOf(shard), 1);
          }
        },
      };
      const providers = [Views, { provide: Pool, useValue: watched }];
      const options = { nodes: redis.url, defaults: { retry: { timeout: 60_000 } } };
      apps.push(await startApp({ providers }, options));
    }
  });
  afterAll(async () => {
    await Promise.all(apps.map((app) => app.close()));
    await Promise.all(pools.map((pool) => pool.end()));
  });

  test('all views of a page are counted, and each shard of the counter has one writer at a time', async () => {
    const adding = apps.flatMap((app) => Array.from({ length: 100 }, () => app.get(Views).add('/', 2)));
    await Promise.all(adding);
    expect(twice).toEqual([]);
    expect(most).toBeGreaterThan(1);
    expect(most).toBeLessThanOrEqual(16);
    await expect(apps[0]!.get(Views).of('/')).resolves.toBe(400);
    const { rows } = await client.query<{ shard: number }>('select shard from views order by shard');
    expect(rows.length).toBeGreaterThan(1);
    expect(rows.every(({ shard }) => shard < 16)).toBe(true);
  });

  test('a page that nobody viewed has zero views', async () => {
    await expect(apps[1]!.get(Views).of('/other')).resolves.toBe(0);
  });
});
