import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { currentLock, type LockHandle, WithLock } from 'nestjs-redlock';
import { FencedRegister } from 'nestjs-redlock/fencing';
import { Pool } from 'pg';
import { DATABASE_URL } from './database-url.js';

@Injectable()
export class Accounts implements OnModuleInit, OnModuleDestroy {
  private readonly pool = new Pool({ connectionString: DATABASE_URL });
  private readonly register = new FencedRegister();

  /** Your application creates these tables in its migrations. */
  async onModuleInit(): Promise<void> {
    await this.pool.query(this.register.createTableSql);
    await this.pool.query('create table if not exists accounts (id text primary key, balance int not null)');
  }

  async onModuleDestroy(): Promise<void> {
    await this.pool.end();
  }

  async open(id: string): Promise<void> {
    await this.pool.query('insert into accounts values ($1, 0) on conflict (id) do update set balance = 0', [
      id,
    ]);
  }

  /** Deposits into one account run one after the other, over all instances. */
  @WithLock((id: string) => `account:${id}`)
  async deposit(id: string, amount: number): Promise<void> {
    const lock = currentLock();
    if (lock) await this.add(lock, id, amount);
  }

  /**
   * Reads the balance after the check of the token: an older holder can no longer write between the read and the write.
   * Rejects with StaleTokenError after a later holder of the key has written.
   */
  async add(lock: LockHandle, id: string, amount: number): Promise<void> {
    await this.register.transaction(this.pool, lock, async (client) => {
      const { rows } = await client.query<{ balance: number }>('select balance from accounts where id = $1', [
        id,
      ]);
      const balance = (rows[0]?.balance ?? 0) + amount;
      await client.query('update accounts set balance = $2 where id = $1', [id, balance]);
    });
  }

  async balance(id: string): Promise<number> {
    const { rows } = await this.pool.query<{ balance: number }>(
      'select balance from accounts where id = $1',
      [id],
    );
    return rows[0]?.balance ?? 0;
  }
}
