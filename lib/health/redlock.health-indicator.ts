import { Injectable } from '@nestjs/common';
import { ModuleRef } from '@nestjs/core';
import { type HealthIndicatorResult, HealthIndicatorService } from '@nestjs/terminus';
import { lockServiceToken } from '../service/lock-service-token.js';
import type { LockService } from '../service/lock.service.js';
import { checkBoolean, checkOptionNames } from '../core/checks.js';
import { hideFields } from '../core/shown-as.js';
import type { NodeStatus } from '../core/node-status.js';

/** Options of {@link RedlockHealthIndicator.isHealthy}. */
export interface RedlockHealthOptions {
  /** The `name` of the `RedlockModule` to check. */
  readonly instance?: string;

  /**
   * Adds each node with its address and its problem to the result. Do not set it for a public health check.
   * @defaultValue false
   */
  readonly details?: boolean;
}

/** Result of a health check of the locks. */
export interface RedlockHealth {
  /** Number of nodes that must agree. */
  readonly quorum: number;
  /** Number of nodes that vote. */
  readonly voting: number;
  /** Number of nodes whose votes do not count yet, because they may have forgotten locks (`restartGuard`). */
  readonly guarded: number;
  /**
   * Number of nodes that must not be used for locks (such as a replica), or that refuse the writes of locks (such as a
   * node whose memory is full).
   */
  readonly unfit: number;
  /** Number of nodes that did not answer. */
  readonly unreachable: number;
  /** Settings of nodes that make locks less safe, such as eviction. */
  readonly warnings: readonly string[];
  /**
   * For each name that `@Leader` has in this application: `true` if this process leads under the name. Absent if no
   * method has `@Leader`.
   */
  readonly leads?: Readonly<Record<string, boolean>>;
  /** The state of each node; only with `details`. */
  readonly nodes?: readonly NodeStatus[];
}

/**
 * Reports to `@nestjs/terminus` whether locks can be acquired: `up` while a quorum of nodes votes, `down` otherwise.
 * The result is `degraded` while a quorum votes and some other node does not vote; a `degraded` result does not fail
 * the check. Terminus 11 and earlier get `up` in place of `degraded`.
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
  ) {
    hideFields(this, 'indicators', 'moduleRef');
  }

  /**
   * @param key - the name of the result
   * @throws TypeError naming the wrong option; Nest's error when no `RedlockModule` has the name `instance`
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
    // Terminus 11 has no `degraded`.
    const degraded = 'degraded' in session && health.voting < nodes.length;
    return degraded ? session.degraded(data) : session.up(data);
  }
}
