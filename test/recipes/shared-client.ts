import { BullModule } from '@nestjs/bullmq';
import { CacheModule } from '@nestjs/cache-manager';
import { Global, Inject, Module, type OnApplicationShutdown } from '@nestjs/common';
import { Redis } from 'ioredis';
import { Keyv, type KeyvStoreAdapter, type StoredData } from 'keyv';
import { RedlockModule } from 'nestjs-redlock';

/** A cache over a client of the application. It has no `disconnect`, so the client stays open. */
class RedisCache implements KeyvStoreAdapter {
  readonly opts = {};

  constructor(private readonly redis: Redis) {}

  on(): this {
    return this;
  }

  async get<Value>(key: string): Promise<StoredData<Value> | undefined> {
    return ((await this.redis.get(key)) ?? undefined) as StoredData<Value> | undefined;
  }

  async set(key: string, value: string, ttl = 60_000): Promise<void> {
    await this.redis.set(key, value, 'PX', ttl);
  }

  async delete(key: string): Promise<boolean> {
    return (await this.redis.unlink(key)) > 0;
  }

  /** Deletes only the keys of the cache. `flushdb` would also delete locks and jobs. */
  async clear(): Promise<void> {
    for await (const keys of this.redis.scanStream({ match: 'cache:*' })) {
      if ((keys as string[]).length > 0) await this.redis.unlink(keys as string[]);
    }
  }
}

@Global()
@Module({
  providers: [
    {
      provide: Redis,
      useFactory: () =>
        new Redis(process.env['REDIS_URL'] ?? 'redis://localhost:6379', { maxRetriesPerRequest: null }),
    },
  ],
  exports: [Redis],
})
export class RedisModule implements OnApplicationShutdown {
  constructor(@Inject(Redis) private readonly redis: Redis) {}

  /** Runs in the last phase of the shutdown, after the hooks of the modules that import this module. */
  async onApplicationShutdown(): Promise<void> {
    await this.redis.quit();
  }
}

@Module({
  imports: [
    RedlockModule.forRootAsync({
      imports: [RedisModule],
      inject: [Redis],
      useFactory: (redis: Redis) => ({ nodes: redis }),
    }),
    BullModule.forRootAsync({
      imports: [RedisModule],
      inject: [Redis],
      useFactory: (connection: Redis) => ({ connection }),
    }),
    CacheModule.registerAsync({
      isGlobal: true,
      imports: [RedisModule],
      inject: [Redis],
      useFactory: (redis: Redis) => ({
        stores: new Keyv({ store: new RedisCache(redis), namespace: 'cache' }),
      }),
    }),
  ],
})
export class SharedRedisModule {}
