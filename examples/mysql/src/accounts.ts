import { Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { createPool, type Pool, type PoolConnection, type RowDataPacket } from 'mysql2/promise';
import { currentLock, type LockHandle, WithLock } from 'nestjs-redlock';
import { MysqlFencedRegister } from 'nestjs-redlock/fencing';
import { DATABASE_URL } from './database-url.js';

@Injectable()
export class Accounts implements OnModuleInit, OnModuleDestroy {
  private readonly pool = createPool(DATABASE_URL);
  private readonly register = new MysqlFencedRegister();

  /** Your application creates these tables in its migrations. */
  async onModuleInit(): Promise<void> {
    await this.pool.query(this.register.createTableSql);
    await this.pool.query(
      'create table if not exists accounts (id varchar(50) primary key, balance int not null)',
    );
  }

  async onModuleDestroy(): Promise<void> {
    await this.pool.end();
  }

  async open(id: string): Promise<void> {
    await this.pool.query('insert into accounts values (?, 0) on duplicate key update balance = 0', [id]);
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
    await this.register.transaction(this.pool, lock, async (connection) => {
      const balance = (await this.read(connection, id)) + amount;
      await connection.query('update accounts set balance = ? where id = ?', [balance, id]);
    });
  }

  balance(id: string): Promise<number> {
    return this.read(this.pool, id);
  }

  private async read(from: Pool | PoolConnection, id: string): Promise<number> {
    const [rows] = await from.query<RowDataPacket[]>('select balance from accounts where id = ?', [id]);
    return (rows[0] as { balance: number } | undefined)?.balance ?? 0;
  }
}
