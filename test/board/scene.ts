import { setTimeout as sleep } from 'node:timers/promises';
import type { Type } from '@nestjs/common';
import { Interval, ScheduleModule } from '@nestjs/schedule';
import type { Page } from 'playwright-core';
import {
  defineLocks,
  Leader,
  type LeaderTerm,
  type LockService,
  RedlockModule,
  type RedlockModuleOptions,
  WithLock,
} from '../../lib/index.js';
import { lockServiceToken } from '../../lib/service/lock-service-token.js';
import { LogLines } from '../support/log-lines.js';
import { startPlainApp } from '../support/nest-app.js';
import { startRedisNodes } from '../support/redis-server.js';
import { type BoardApp, startBoard } from './board-app.js';

const declared = defineLocks({
  'order:settle': {
    key: (id: number) => `order:${id}`,
    ttl: 30_000,
    team: 'payments',
    about: 'one settlement of an order at a time',
  },
  'stripe:api': {
    key: 'stripe',
    permits: 5,
    ttl: 10_000,
    team: 'payments',
    about: 'what Stripe allows at a time',
  },
  'report:nightly': {
    key: 'report:nightly',
    ttl: 60_000,
    onBusy: 'skip',
    team: 'insights',
    about: 'the nightly report',
  },
});

/**
 * Returns the classes with the jobs of one of the three applications. The modules of the applications have different
 * names.
 */
function jobsOf(instance: string | undefined): Type[] {
  const of = instance === undefined ? {} : { instance };
  class Outbox {
    @Interval(700)
    @WithLock('outbox:flush', { oncePerTick: true, ttl: 5_000, ...of })
    async flush(): Promise<void> {
      await sleep(120);
    }
  }
  class Consumer {
    @Leader('payments-consumer', { ttl: 6_000, ...of })
    async consume({ signal }: LeaderTerm): Promise<void> {
      await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
    }
  }
  return [Outbox, Consumer];
}

/**
 * Starts three applications in this process on three nodes, with locks of each kind, with waiters, and with a lock that
 * passes from holder to holder.
 */
export async function scene(): Promise<BoardApp> {
  const servers = await startRedisNodes(3);
  const common: RedlockModuleOptions = {
    nodes: servers.map(({ url }) => url),
    restartGuard: false,
  };
  const board = await startBoard(
    { public: true, allowForceRelease: true },
    {
      locks: { ...common, locks: declared, owner: 'orders-7f9c:1' },
      metadata: { imports: [ScheduleModule.forRoot()], providers: jobsOf(undefined) },
      logger: new LogLines(),
    },
  );
  const others = await Promise.all(
    ['orders-2b1d:1', 'reports-55aa:1'].map(async (owner) => {
      const locks = RedlockModule.forRoot({ ...common, owner, name: owner });
      const imports = [locks, ScheduleModule.forRoot()];
      const app = await startPlainApp({ imports, providers: jobsOf(owner) }, { logger: new LogLines() });
      return app.get<LockService>(lockServiceToken(owner));
    }),
  );
  const [orders, reports] = others as [LockService, LockService];
  const patient = { retry: { timeout: 600_000 } } as const;
  await board.locks.acquire(declared['order:settle'], 1841);
  await orders.acquire('order:1842', { ttl: 30_000 });
  await reports.acquire('order:1855', { ttl: 30_000 });
  void board.locks.acquire(declared['order:settle'].for(1842), patient).catch(() => undefined);
  void board.locks.acquire(declared['order:settle'].for(1842), patient).catch(() => undefined);
  await board.locks.acquire(declared['stripe:api']);
  for (const each of [orders, reports]) await each.acquire('stripe', { permits: 5 });
  await orders.acquire('catalog:7', { mode: 'shared', ttl: 20_000 });
  await reports.acquire('catalog:7', { mode: 'shared', ttl: 20_000 });
  await reports.acquire('export:\u202Exslx.report\n', { ttl: 45_000 });
  for (const each of [board.locks, orders, reports]) void passOn(each);
  return board;
}

/** Takes a lock again and again, so that the lock passes from holder to holder. */
async function passOn(locks: LockService): Promise<void> {
  try {
    for (;;) {
      await locks.withLock('batch:next', { ttl: 5_000, retry: { timeout: 60_000 } }, () => sleep(900));
      await sleep(350);
    }
  } catch {
    // The application is shutting down.
  }
}

/** Shows the filters, which are behind a button on a narrow screen. */
export async function showFilters(page: Page): Promise<void> {
  const button = page.getByRole('button', { name: 'Filters' });
  if ((await button.isVisible()) && (await button.getAttribute('aria-expanded')) === 'false')
    await button.click();
}

/** Opens each view of the page, one after the other, and calls `see` with the name of each. */
export async function everyView(page: Page, see: (shown: string) => Promise<void>): Promise<void> {
  await page.getByRole('button', { name: 'stripe' }).waitFor();
  await see('locks');
  for (const view of ['declared', 'leaders', 'ticks', 'nodes']) {
    await page.getByRole('link', { name: view }).click();
    await page.locator('nav [aria-current=page]', { hasText: view }).waitFor();
    await page.locator('main table').waitFor();
    await see(view);
  }
  await page.getByRole('link', { name: 'locks' }).click();
  await showFilters(page);
  await page.fill('input[name=prefix]', 'batch:');
  await page.getByRole('button', { name: 'Timeline' }).click();
  await page.locator('.timeline .work').first().waitFor();
  await see('timeline');
  await page.getByRole('button', { name: 'Timeline' }).click();
  await page.fill('input[name=prefix]', '');
  await page.getByRole('button', { name: 'stripe' }).click();
  await page.locator('.details .slots').waitFor();
  await see('details');
  await page.getByRole('button', { name: 'Release…' }).first().click();
  await page.getByRole('dialog').waitFor();
  await see('question');
}
