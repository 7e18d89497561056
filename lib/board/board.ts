import { type BeforeApplicationShutdown, Inject, Injectable, type OnModuleInit } from '@nestjs/common';
import { ModuleRef } from '@nestjs/core';
import { BoardServer, type Exchange } from './live/board-server.js';
import { History } from './live/history.js';
import { LiveLocks, type LockSource } from './live/live-locks.js';
import type { DeclaredRow } from './live/messages.js';
import { ProcessEvents } from './live/process-events.js';
import { hideFields } from '../core/shown-as.js';
import { lockServiceToken } from '../service/lock-service-token.js';
import type { LockDeclaration } from '../service/declarations.js';
import type { LockService } from '../service/lock.service.js';
import type { RedlockBoardOptions } from './board.options.js';

export const BOARD_OPTIONS = Symbol('REDLOCK_BOARD_OPTIONS');

/** A request of Express, or a request of Fastify, which has the request of Node in `raw`. */
export type PlatformRequest = Exchange['request'] & { raw?: Exchange['request']; originalUrl?: string };

/**
 * A response of Express, or a response of Fastify, which has the response of Node in `raw`. After `hijack`, Fastify
 * and Nest send no answer, not even for an error.
 */
export type PlatformResponse = Exchange['response'] & { raw?: Exchange['response']; hijack?: () => void };

/**
 * The board of this process. It records the events of this process's locks, and reads the store while somebody has the
 * page open.
 */
@Injectable()
export class Board implements OnModuleInit, BeforeApplicationShutdown {
  #server: BoardServer | undefined;
  #events: ProcessEvents | undefined;

  constructor(
    @Inject(BOARD_OPTIONS) private readonly options: RedlockBoardOptions,
    @Inject(ModuleRef) private readonly moduleRef: ModuleRef,
  ) {
    hideFields(this, 'options', 'moduleRef');
  }

  /** @throws Nest's error when the application has no `RedlockModule` with the name in `instance` */
  onModuleInit(): void {
    const { instance, allowForceRelease = false } = this.options;
    const locks = this.moduleRef.get<LockService>(lockServiceToken(instance), { strict: false });
    const { owner } = locks;
    const history = new History();
    this.#events = new ProcessEvents(owner, instance, history);
    const declared = locks.declared().map(declaredRow);
    const about = { owner, ...(instance !== undefined && { instance }), allowForceRelease, declared };
    this.#server = new BoardServer(
      new LiveLocks(sourceOf(locks), about, history, this.#events),
      allowForceRelease,
    );
  }

  get(request: PlatformRequest, response: PlatformResponse, file: string): void {
    const url = request.originalUrl ?? request.url ?? '';
    this.#server?.get(exchangeOf(request, response), url, file);
  }

  async release(request: PlatformRequest, response: PlatformResponse, body: unknown): Promise<void> {
    const actorOf = async (): Promise<string | undefined> => this.options.actor?.(request as never);
    await this.#server?.release(exchangeOf(request, response), body, actorOf);
  }

  /** Ends the streams to the pages in this hook, because the server waits for open streams before it closes. */
  beforeApplicationShutdown(): void {
    this.#server?.close();
    this.#events?.stop();
  }
}

function exchangeOf(request: PlatformRequest, response: PlatformResponse): Exchange {
  return {
    request: request.raw ?? request,
    get response() {
      response.hijack?.();
      return response.raw ?? response;
    },
  };
}

function sourceOf(locks: LockService): LockSource {
  return {
    list: () => locks.list(),
    checkNodes: () => locks.checkNodes(),
    forceRelease: (key, options) => locks.forceRelease(key, options),
    waiting: (keys) => locks.waiting(keys),
    heldIds: () => locks.heldIds,
    process: locks.process,
    campaigns: () => locks.leaders().map((leader) => ({ name: leader.name, isLeader: leader.isLeader() })),
  };
}

/** Returns a declared lock as the page shows it. */
function declaredRow(declaration: LockDeclaration): DeclaredRow {
  const { name, keys, team, about, mode, permits, overridden } = declaration;
  return {
    name,
    keys: keys ?? null,
    ...(team !== undefined && { team }),
    ...(about !== undefined && { about }),
    mode,
    ...(permits !== undefined && { permits }),
    policy: policyOf(declaration),
    overridden,
  };
}

/** Returns the ttl and the options that differ from their defaults. */
function policyOf(declaration: LockDeclaration): string {
  const { ttl, renew, maxBlocked, minHold, maxHold, reentrant, onLost, onBusy, oncePerTick } = declaration;
  const parts = [
    `ttl ${ttl}`,
    renew === true ? '' : `renew ${renew}`,
    maxBlocked === undefined ? '' : `maxBlocked ${maxBlocked}`,
    minHold > 0 ? `minHold ${minHold}` : '',
    maxHold === undefined ? '' : `maxHold ${maxHold}`,
    onBusy === 'throw' ? '' : `onBusy ${onBusy}`,
    oncePerTick ? 'oncePerTick' : '',
    reentrant ? 'reentrant' : '',
    onLost === 'throw' ? '' : `onLost ${onLost}`,
  ];
  return parts.filter((part) => part !== '').join(', ');
}
