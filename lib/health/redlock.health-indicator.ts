import { Injectable } from '@nestjs/common';
import { ModuleRef } from '@nestjs/core';
import { type HealthIndicatorResult, HealthIndicatorService } from '@nestjs/terminus';
import { lockServiceToken } from '../service/inject-lock-service.decorator.js';
import type { LockService } from '../service/lock.service.js';
import { checkBoolean, checkOptionNames } from '../core/checks.js';
import type { NodeStatus } from '../core/node-status.js';

/** What {@link RedlockHealthIndicator.isHealthy} takes. */
export interface RedlockHealthOptions {
  /** The `name` of the `RedlockModule` to look at. */
  readonly instance?: string;

  /**
   * Whether the answer has each node with its address and what is wrong with it. A health check that everybody can ask
   * for should not.
   * @defaultValue false
   */
  readonly details?: boolean;
}

/** What a health check tells of the locks. */
export interface RedlockHealth {
  /** How many nodes must agree. */
  readonly quorum: number;
  /** How many nodes vote. */
  readonly voting: number;
  /** How many are kept from voting for a while, because they may have forgotten locks (`restartGuard`). */
  readonly guarded: number;
  /** How many must not be used for locks, such as a replica, or refuse what a lock writes (no memory, no right). */
  readonly unfit: number;
  /** How many did not answer. */
  readonly unreachable: number;
  /** What makes locks weaker than they could be, such as eviction. */
  readonly warnings: readonly string[];
  /** Whether this process leads, by each name that it campaigns for (`@Leader`); only if there is one. */
  readonly leads?: Readonly<Record<string, boolean>>;
  /** Only with `details`. */
  readonly nodes?: readonly NodeStatus[];
}

/**
 * Tells `@nestjs/terminus` whether locks can be had: `up` while a quorum of nodes votes, `down` otherwise. While some
 * of the others do not vote it is `degraded`, which does not fail the check (up to terminus 11, `up`).
 *
 * @example
 * ```ts
 * import { Controller, Get, Module } from '@nestjs/common';
 * import { HealthCheck, HealthCheckService, TerminusModule } from '@nestjs/terminus';
 * import { RedlockHealthIndicator } from 'nestjs-redlock/health';
 *
 * @Controller('health')
 * class HealthController {
 *   constructor(
 *     private readonly health: HealthCheckService,
 *     private readonly locks: RedlockHealthIndicator,
 *   ) {}
 *
 *   @Get()
 *   @HealthCheck()
 *   check() {
 *     return this.health.check([() => this.locks.isHealthy('locks')]);
 *   }
 * }
 *
 * @Module({ imports: [TerminusModule], controllers: [HealthController], providers: [RedlockHealthIndicator] })
 * class HealthModule {}
 * ```
 */
@Injectable()
export class RedlockHealthIndicator {
  constructor(
    private readonly indicators: HealthIndicatorService,
    private readonly moduleRef: ModuleRef,
  ) {}

  /**
   * @param key - what the result is called
   * @throws TypeError naming the option that does not fit; Nest's error when there is no such `instance`
   */
  async isHealthy<const Key extends string>(
    key: Key,
    options: RedlockHealthOptions = {},
  ): Promise<HealthIndicatorResult<Key>> {
    checkOptionNames('isHealthy', options, ['instance', 'details']);
    const { instance, details = false } = options;
    checkBoolean('details', details);
    const locks = this.moduleRef.get<LockService>(lockServiceToken(instance), { strict: false });
    const { available, quorum, nodes } = await locks.checkNodes();
    const leaders = locks.leaders();
    const count = (state: NodeStatus['state']): number => nodes.filter((node) => node.state === state).length;
    const health: RedlockHealth = {
      quorum,
      voting: count('voting'),
      guarded: count('guarded'),
      unfit: count('unfit'),
      unreachable: count('unreachable'),
      warnings: [...new Set(nodes.flatMap(({ warnings }) => warnings))],
      ...(leaders.length > 0 && {
        leads: Object.fromEntries(leaders.map((leader) => [leader.name, leader.isLeader()])),
      }),
      ...(details ? { nodes } : {}),
    };
    const session = this.indicators.check(key);
    const data = { ...health };
    if (!available) return session.down(data);
    // Not in terminus 11.
    const degraded = 'degraded' in session && health.voting < nodes.length;
    return degraded ? session.degraded(data) : session.up(data);
  }
}
