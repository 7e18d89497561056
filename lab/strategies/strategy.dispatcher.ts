import {
  type BeforeApplicationShutdown,
  Inject,
  Injectable,
  type OnApplicationBootstrap,
  type OnApplicationShutdown,
  Optional,
} from '@nestjs/common';
import { Redis } from 'ioredis';
import { currentLock, LockLostError, LockUnavailableError } from 'nestjs-redlock';
import { StaleTokenError } from 'nestjs-redlock/fencing';
import { ENVIRONMENT, type Environment } from '../../sample-app/config/environment.js';
import { type DispatchLock, DispatchJob } from '../../sample-app/dispatch/dispatch.job.js';
import { DispatchSteps } from '../../sample-app/dispatch/dispatch-steps.js';
import { InstanceSettings } from '../instance/instance-settings.js';
import { Journal } from '../instance/journal.js';
import { DatabaseDispatch } from './database-dispatch.js';
import {
  CountedPerNode,
  NoLock,
  OwnerId,
  OwnerIdWithToken,
  PlainDelete,
  ReadersFirst,
  RedlockUnguarded,
  Setnx,
  SetnxThenExpire,
  WriterLast,
} from './home-made-locks.js';
import type { LockStrategy } from './lock-strategy.js';
import { SeveralHoldersStrategy } from './several-holders.strategy.js';
import { FOR_SEVERAL, type StrategyName } from './strategy-names.js';
import { ThreadStrategy } from './thread.strategy.js';
import { WithLockStrategy } from './with-lock.strategy.js';

/** Dispatches under one of the strategies. The lab can change the strategy at any time. */
@Injectable()
export class StrategyDispatcher
  implements OnApplicationBootstrap, BeforeApplicationShutdown, OnApplicationShutdown
{
  private readonly nodes: readonly [Redis, ...Redis[]];
  private readonly key: string;
  private timer: NodeJS.Timeout | undefined;
  private running: Promise<void> | undefined;
  private hasAsked = false;

  constructor(
    @Inject(ENVIRONMENT) private readonly environment: Environment,
    private readonly settings: InstanceSettings,
    private readonly job: DispatchJob,
    private readonly steps: DispatchSteps,
    private readonly journal: Journal,
    private readonly withLock: WithLockStrategy,
    private readonly severalHolders: SeveralHoldersStrategy,
    private readonly database: DatabaseDispatch,
    @Optional() private readonly byThread?: ThreadStrategy,
  ) {
    const { LOCK_REDIS_URLS, REDIS_URLS, KEY_PREFIX } = environment;
    this.key = `${KEY_PREFIX}:batch:task:list`;
    const [first, ...others] = LOCK_REDIS_URLS ?? REDIS_URLS;
    this.nodes = [connectTo(first), ...others.map(connectTo)];
  }

  async onApplicationBootstrap(): Promise<void> {
    // The instance starts even if a node is down; the client connects later.
    await Promise.all(this.nodes.map((node) => node.connect().catch(() => undefined)));
    this.timer = setInterval(() => {
      if (!this.settings.active) return;
      this.running ??= this.tick().finally(() => (this.running = undefined));
    }, this.settings.every);
  }

  async beforeApplicationShutdown(): Promise<void> {
    clearInterval(this.timer);
    await this.running;
  }

  onApplicationShutdown(): void {
    for (const node of this.nodes) node.disconnect();
  }

  private async tick(): Promise<void> {
    const asked = Date.now();
    // The writer itself reports its first request. A report by the lab would be too early, because the lab's message
    // may reach the writer late: readers that ask in between would count as overtakers, although the writer has not
    // asked yet.
    if (this.settings.writes && !this.hasAsked) this.journal.tell({ kind: 'asking' });
    this.hasAsked = true;
    let token: number | undefined;
    try {
      const ran = await this.attempt(async (lock) => {
        token = lock?.fencingToken;
        const { strategy } = this.settings;
        const locked = strategy !== 'none';
        const slot = currentLock()?.slot;
        // A reader asks again when its turn comes, so its last request was a moment ago, however long it has waited.
        const ago = strategy === 'shared' ? 0 : Date.now() - asked;
        this.journal.tell({ kind: 'acquired', asked: ago, locked, token, slot, ttl: this.ttl });
        await this.dispatch(lock);
        this.journal.tell({ kind: 'released' });
      });
      if (!ran) this.journal.tell({ kind: 'skipped' });
    } catch (error) {
      this.report(error as Error);
    }
  }

  /** Does the work under the lock. */
  private async dispatch(lock: DispatchLock | undefined): Promise<void> {
    const { settings } = this;
    if (settings.writes) {
      await this.steps.work();
      // The writer writes once.
      settings.active = false;
    } else if (FOR_SEVERAL.has(settings.strategy)) await this.database.skippingLocked();
    else await this.job.run(lock);
  }

  private async attempt(task: (lock?: DispatchLock) => Promise<void>): Promise<boolean> {
    const { strategy } = this.settings;
    if (strategy === 'skip-locked' || strategy === 'unique-constraint') {
      this.journal.tell({ kind: 'acquired', asked: 0, locked: false });
      await (strategy === 'skip-locked' ? this.database.skippingLocked() : this.database.oncePerDispatch());
      this.journal.tell({ kind: 'released' });
      return true;
    }
    return this.lock(strategy).attempt(task);
  }

  private lock(strategy: Exclude<StrategyName, 'skip-locked' | 'unique-constraint'>): LockStrategy {
    const [redis] = this.nodes;
    const { writes } = this.settings;
    const { LOCK_TTL: ttl } = this.environment;
    switch (strategy) {
      case 'none':
        return new NoLock();
      case 'setnx':
        return new Setnx(redis, this.key);
      case 'setnx-expire':
        return new SetnxThenExpire(redis, this.key, ttl);
      case 'plain-delete':
        return new PlainDelete(redis, this.key, ttl);
      case 'owner-id':
        return new OwnerId(redis, this.key, ttl);
      case 'owner-id-with-token':
        return new OwnerIdWithToken(redis, this.key, ttl);
      case 'redlock-unguarded':
        return new RedlockUnguarded(this.nodes, this.key, ttl);
      case 'with-lock':
        return this.withLock;
      case 'with-thread':
        // An instance that was started while the lock was off has no thread.
        return this.byThread ?? this.withLock;
      case 'counted-per-node':
        return new CountedPerNode(this.nodes, this.key, ttl);
      case 'readers-first':
        return new (writes ? WriterLast : ReadersFirst)(this.nodes, this.key, ttl);
      case 'permits':
        return this.severalHolders.permits;
      case 'shared':
        return writes ? this.severalHolders.exclusive : this.severalHolders.shared;
    }
  }

  /** Time for which Redis keeps the lock; `undefined` for a strategy without a lock or without a ttl. */
  private get ttl(): number | undefined {
    const { strategy } = this.settings;
    return strategy === 'none' || strategy === 'setnx' ? undefined : this.environment.LOCK_TTL;
  }

  private report(error: Error): void {
    const { message } = error;
    // The state of the lock has told the loss (instance-process.ts).
    if (error instanceof LockLostError) return;
    if (error instanceof LockUnavailableError) this.journal.tell({ kind: 'unavailable', message });
    else if (error instanceof StaleTokenError) this.journal.tell({ kind: 'refused', message });
    else this.journal.tell({ kind: 'failed', message });
  }
}

/**
 * Opens a client whose commands fail immediately while the server is down. A command that runs seconds later would be
 * another fault.
 */
function connectTo(url: string): Redis {
  const client = new Redis(url, {
    lazyConnect: true,
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    retryStrategy: () => 50,
  });
  client.on('error', () => undefined);
  return client;
}
