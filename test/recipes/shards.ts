import { Injectable } from '@nestjs/common';
import { currentLock, WithLock } from 'nestjs-redlock';
import { Pool } from 'pg';

export const VIEWS = 'create table views (page text, shard int, count bigint, primary key (page, shard))';

@Injectable()
export class Views {
  constructor(private readonly pool: Pool) {}

  @WithLock((page: string) => `views:${page}`, { permits: 16 })
  async add(page: string, views: number): Promise<void> {
    await this.pool.query(
      'insert into views values ($1, $2, $3) on conflict (page, shard) do update set count = views.count + $3',
      [page, currentLock()?.slot, views],
    );
  }

  async of(page: string): Promise<number> {
    const sum = 'select coalesce(sum(count), 0)::int as count from views where page = $1';
    const { rows } = await this.pool.query<{ count: number }>(sum, [page]);
    return rows[0]?.count ?? 0;
  }
}
