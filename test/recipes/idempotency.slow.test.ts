import 'reflect-metadata';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import type { INestApplication } from '@nestjs/common';
import { type Client, Pool } from 'pg';
import request from 'supertest';
import { LockService } from '../../lib/index.js';
import { bundled } from '../support/bundle.js';
import { Instance } from '../support/instance.js';
import { startApp } from '../support/nest-app.js';
import { startPostgresServer } from '../support/postgres-server.js';
import { startRedis } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { PaymentsController, Requests, REQUESTS } from './idempotency.js';

let urls: { readonly REDIS_URL: string; readonly DATABASE_URL: string };
let client: Client;
let pool: Pool;
let app: INestApplication;

const payments = async (): Promise<unknown[]> => (await client.query('select amount from payments')).rows;

function pay(key: string, amount: number): request.Test {
  return request(app.getHttpServer() as Parameters<typeof request>[0])
    .post('/payments')
    .set('Idempotency-Key', key)
    .send({ amount });
}

/** Makes each insertion of a payment wait. Resolves to the function that ends the wait. */
async function holdUp(): Promise<() => Promise<unknown>> {
  await client.query('begin');
  await client.query('lock table payments in share mode');
  return () => client.query('commit');
}

const isInserting = async (): Promise<boolean> => {
  const { rows } = await pool.query(
    "select 1 from pg_stat_activity where query like 'insert into payments%' and wait_event_type = 'Lock'",
  );
  return rows.length === 1;
};

// This block closes its application in `afterAll`. The clean-up of the test file stops the servers later.
describe('payments', () => {
  beforeAll(async () => {
    const [redis, postgres] = await Promise.all([startRedis(), startPostgresServer()]);
    urls = { REDIS_URL: redis.url, DATABASE_URL: postgres.url };
    client = await postgres.client();
    await client.query(REQUESTS);
    await client.query('create table payments (id serial primary key, amount int not null)');
    pool = new Pool({ connectionString: postgres.url });
    app = await startApp(
      { controllers: [PaymentsController], providers: [Requests, { provide: Pool, useValue: pool }] },
      // Each request makes one attempt, in which a node has a fifth of the ttl to answer. This long ttl gives a busy
      // machine enough time.
      { nodes: redis.url, defaults: { ttl: 60_000 } },
    );
    await app.listen(0, '127.0.0.1');
  });
  beforeEach(() => client.query('truncate requests, payments'));
  afterAll(async () => {
    await app.close();
    await pool.end();
  });

  test('a repeated payment request gets the response to the first request, and only one payment is made', async () => {
    const first = await pay('a', 7).expect(201);
    const second = await pay('a', 7).expect(201);
    expect(second.body).toEqual(first.body);
    await expect(payments()).resolves.toEqual([{ amount: 7 }]);
  });

  test('a request is refused if its idempotency key is empty or belongs to a different request', async () => {
    await pay('a', 7).expect(201);
    await pay('a', 8).expect(422);
    await pay('', 8).expect(400);
    await expect(payments()).resolves.toEqual([{ amount: 7 }]);
  });

  test('a repeated request gets 409 with Retry-After while the first request is running', async () => {
    const goOn = await holdUp();
    const first = pay('a', 7).then(({ status, body }) => ({ status, body: body as unknown }));
    await until(isInserting);
    const { status, headers } = await pay('a', 7);
    await goOn();
    expect([status, Number(headers['retry-after']) >= 1]).toEqual([409, true]);
    await expect(first).resolves.toMatchObject({ status: 201 });
    await pay('a', 7).expect(201);
    await expect(payments()).resolves.toEqual([{ amount: 7 }]);
  });

  test('a process that is killed before the commit pays nothing, and the repeated request succeeds after the ttl', async () => {
    const file = await bundled('test/fixtures/payments-app.ts');
    const instance = new Instance(file, urls);
    await until(() => instance.lines.length === 1);
    const goOn = await holdUp();
    const cut = fetch(`${instance.lines[0]}/payments`, {
      method: 'POST',
      headers: { 'Idempotency-Key': 'a', 'Content-Type': 'application/json' },
      body: JSON.stringify({ amount: 7 }),
    }).then(
      ({ status }) => status,
      () => 'cut',
    );
    await until(isInserting);
    await instance.kill();
    await expect(cut).resolves.toBe('cut');
    await pay('a', 7).expect(409);
    await goOn();
    await until(async () => (await pay('a', 7)).status === 201);
    await expect(payments()).resolves.toEqual([{ amount: 7 }]);
  });

  test('two processes that both believe that they hold the lock make one payment in total', async () => {
    const requests = app.get(Requests);
    const locks = app.get(LockService);
    const work = async (): Promise<string> => 'paid';
    const once = requests.once('a', {}, async (paying) => {
      await paying.query('insert into payments (amount) values (1)');
      // Simulates a pause that is longer than the ttl: another process gets the lock, and commits first.
      await locks.forceRelease('request:a');
      await requests.once('a', {}, async (other) => {
        await other.query('insert into payments (amount) values (2)');
        return work();
      });
      return work();
    });
    await expect(once).rejects.toMatchObject({ code: '23505' });
    await expect(payments()).resolves.toEqual([{ amount: 2 }]);
  });
});
