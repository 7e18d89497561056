import { createHash } from 'node:crypto';
import {
  BadRequestException,
  Body,
  Controller,
  Headers,
  Injectable,
  Post,
  UnprocessableEntityException,
  UseFilters,
} from '@nestjs/common';
import { LockExceptionFilter, LockService } from 'nestjs-redlock';
import { Pool, type PoolClient } from 'pg';

export const REQUESTS =
  'create table requests (key text primary key, hash text not null, response jsonb not null)';

@Injectable()
export class Requests {
  constructor(
    private readonly locks: LockService,
    private readonly pool: Pool,
  ) {}

  /** Runs `work` once for each key, and gives its response to each request with that key. */
  once<T>(key: string, request: unknown, work: (client: PoolClient) => Promise<T>): Promise<T> {
    const hash = createHash('sha256').update(JSON.stringify(request)).digest('hex');
    return this.locks.withLock(`request:${key}`, { retry: false }, async () => {
      const client = await this.pool.connect();
      try {
        await client.query('begin');
        const response = await this.answer(client, key, hash, work);
        await client.query('commit');
        client.release();
        return response;
      } catch (error) {
        // The connection is closed, not returned to the pool, so the server rolls back.
        client.release(true);
        throw error;
      }
    });
  }

  private async answer<T>(
    client: PoolClient,
    key: string,
    hash: string,
    work: (client: PoolClient) => Promise<T>,
  ): Promise<T> {
    const { rows } = await client.query<{ hash: string; response: T }>(
      'select hash, response from requests where key = $1',
      [key],
    );
    const [known] = rows;
    if (known && known.hash !== hash) {
      throw new UnprocessableEntityException('This Idempotency-Key belongs to another request');
    }
    if (known) return known.response;
    const response = await work(client);
    // If two processes believe that they hold the lock, the primary key lets one commit, and the other is rolled back.
    await client.query('insert into requests values ($1, $2, $3)', [key, hash, JSON.stringify(response)]);
    return response;
  }
}

@Controller('payments')
@UseFilters(LockExceptionFilter)
export class PaymentsController {
  constructor(private readonly requests: Requests) {}

  @Post()
  pay(
    @Headers('idempotency-key') key: string | undefined,
    @Body() body: { amount: number },
  ): Promise<object> {
    if (!key) throw new BadRequestException('Send an Idempotency-Key');
    return this.requests.once(key, body, async (client) => {
      const insert = 'insert into payments (amount) values ($1) returning id, amount';
      const { rows } = await client.query<{ id: number; amount: number }>(insert, [body.amount]);
      return rows[0] ?? {};
    });
  }
}
