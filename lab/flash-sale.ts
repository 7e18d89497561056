import { randomBytes } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { ServerProcess } from '../sample-app/demo/server-process.js';
import type { StopList } from '../sample-app/demo/stop-list.js';
import type { Outcome } from './lab-event.js';
import type { Recorder } from './recorder.js';
import type { RedisNode } from './redis-node.js';

const PROGRAM = fileURLToPath(new URL('./flash-sale-process.js', import.meta.url));

export interface SalePlan {
  readonly way: 'unguarded' | 'lock' | 'script';
  readonly shops: number;
  readonly buyersPerShop: number;
  readonly stock: number;
}

type Message = { readonly kind: 'open' } | { readonly kind: 'sold'; readonly count: number };

/** Lets several processes sell the same stock at the same time. */
export async function runFlashSale(
  { way, shops, buyersPerShop, stock }: SalePlan,
  redis: RedisNode,
  recorder: Recorder,
  stops: StopList,
): Promise<Outcome> {
  const key = `lab_sale_${randomBytes(4).toString('hex')}`;
  await redis.client.set(key, stock);
  await stops.add(async () => void (await redis.client.del(key)));
  const sellers = await Promise.all(
    recorder.record.instances.slice(0, shops).map(async (name) => {
      const shop = new ServerProcess(name, process.execPath, [PROGRAM], {
        stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
        env: {
          ...process.env,
          SALE_REDIS: redis.url,
          SALE_KEY: key,
          SALE_WAY: way,
          SALE_BUYERS: String(buyersPerShop),
        },
      });
      await stops.add(() => shop.kill());
      const said = new Set<Message>();
      shop.onMessage((message) => said.add(message as Message));
      await shop.whenReady(() => [...said].find(({ kind }) => kind === 'open'));
      recorder.add({ at: Date.now(), who: name, kind: 'started' });
      return { name, shop, said };
    }),
  );
  const start = Date.now();
  const sold = await Promise.all(
    sellers.map(async ({ name, shop, said }) => {
      shop.send({ go: true });
      const { count } = await shop.whenReady(() => [...said].find((message) => message.kind === 'sold'));
      recorder.add({ at: Date.now(), who: name, kind: 'note', text: `sold ${count}` });
      return count;
    }),
  );
  const took = Date.now() - start;
  const total = sold.reduce((sum, count) => sum + count, 0);
  return {
    tasks: stock,
    pushes: total,
    duplicates: Math.max(0, total - stock),
    lost: Math.max(0, stock - total),
    doneTwice: 0,
    overlaps: 0,
    tooMany: 0,
    overtakes: 0,
    grantedTwice: 0,
    refused: 0,
    skips: 0,
    unavailable: 0,
    took,
  };
}
