import { Module } from '@nestjs/common';
import { RedlockModule } from 'nestjs-redlock';
import { mysql } from 'nestjs-redlock/mysql';
import { Accounts } from './accounts.js';
import { DATABASE_URL } from './database-url.js';

@Module({
  imports: [RedlockModule.forRoot({ nodes: mysql({ uri: DATABASE_URL }) })],
  providers: [Accounts],
})
export class AppModule {}
