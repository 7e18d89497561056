import { CACHE_MANAGER } from '@nestjs/cache-manager';
import { Inject, Injectable } from '@nestjs/common';
import type { Cache } from 'cache-manager';
import { LockService } from 'nestjs-redlock';

export abstract class Supplier {
  abstract priceOf(article: string): Promise<number>;
}

@Injectable()
export class Prices {
  private readonly filling = new Map<string, Promise<number>>();

  constructor(
    @Inject(CACHE_MANAGER) private readonly cache: Cache,
    private readonly locks: LockService,
    private readonly supplier: Supplier,
  ) {}

  async of(article: string): Promise<number> {
    const key = `price:${article}`;
    const known = await this.cache.get<number>(key);
    if (known !== undefined) return known;
    // One call of this process waits for the lock. All requests of this process for the key share that call.
    const filling = this.filling.get(key) ?? this.fill(key, article).finally(() => this.filling.delete(key));
    this.filling.set(key, filling);
    return filling;
  }

  private fill(key: string, article: string): Promise<number> {
    const options = { ttl: 5_000, retry: { timeout: 20_000 }, onLost: 'ignore' } as const;
    return this.locks.withLock(`fill:${key}`, options, async () => {
      // Look again: the previous holder has filled the cache, unless it died.
      const filled = await this.cache.get<number>(key);
      if (filled !== undefined) return filled;
      const price = await this.supplier.priceOf(article);
      // Store under the lock, so that the next holder finds the value.
      await this.cache.set(key, price, 60_000);
      return price;
    });
  }
}
