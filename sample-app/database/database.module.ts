import { Global, Inject, Logger, Module, type OnApplicationShutdown } from '@nestjs/common';
import { Pool } from 'pg';
import { ENVIRONMENT, type Environment } from '../config/environment.js';
import { createSchema } from './schema.js';

/** Injection token of the connection pool. */
export const POOL = Symbol('POOL');

/** The connection pool, with the tables in place. */
@Global()
@Module({
  providers: [
    {
      provide: POOL,
      inject: [ENVIRONMENT],
      useFactory: async ({ DATABASE_URL }: Environment): Promise<Pool> => {
        const pool = new Pool({
          connectionString: DATABASE_URL,
          // With this limit a request gets a 503 if the database does not answer.
          connectionTimeoutMillis: 10_000,
          query_timeout: 10_000,
        });
        // The pool replaces an idle connection that breaks. Without a listener the error would end the process.
        pool.on('error', (error) => new Logger('Database').warn(error.message));
        await createSchema(pool);
        return pool;
      },
    },
  ],
  exports: [POOL],
})
export class DatabaseModule implements OnApplicationShutdown {
  constructor(@Inject(POOL) private readonly pool: Pool) {}

  async onApplicationShutdown(): Promise<void> {
    await this.pool.end();
  }
}
