import { Module } from '@nestjs/common';
import { RedlockModule } from 'nestjs-redlock';
import { postgres } from 'nestjs-redlock/postgres';
import { Accounts } from './accounts.js';
import { DATABASE_URL } from './database-url.js';

@Module({
  imports: [RedlockModule.forRoot({ nodes: postgres({ connectionString: DATABASE_URL }) })],
  providers: [Accounts],
})
export class AppModule {}
