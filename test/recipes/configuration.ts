import { Module } from '@nestjs/common';
import { ConfigModule, ConfigService } from '@nestjs/config';
import { RedlockModule, type RedlockModuleOptions } from 'nestjs-redlock';
import { z } from 'zod';

const environment = z.object({
  REDIS_URLS: z
    .string({ error: 'one URL such as redis://host:6379, or several, separated by commas' })
    .transform((urls) => urls.split(','))
    .pipe(z.tuple([z.url({ protocol: /^rediss?$/ })], z.url({ protocol: /^rediss?$/ }))),
  LOCK_TTL: z.coerce.number().int().min(1_000).default(10_000),
});

type Environment = z.output<typeof environment>;

@Module({
  imports: [
    ConfigModule.forRoot({ isGlobal: true, validate: (variables) => environment.parse(variables) }),
    RedlockModule.forRootAsync({
      inject: [ConfigService],
      useFactory: (config: ConfigService<Environment, true>): RedlockModuleOptions => ({
        nodes: config.get('REDIS_URLS', { infer: true }),
        defaults: { ttl: config.get('LOCK_TTL', { infer: true }) },
      }),
    }),
  ],
})
export class AppModule {}
