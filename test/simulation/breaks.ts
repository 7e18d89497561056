import type { Rule } from './judge/rules.js';
import type { Patch } from './node/load.js';

/** An error in the library, planted to show that the judge finds it under the same profile of faults as every run. */
export interface Break {
  readonly name: string;
  /** The rule of docs/safety-rules.md that the error breaks. */
  readonly safety: string;
  /** The promises of which at least one must break. */
  readonly expected: readonly Rule[];
  /** The number of seeds within which that must happen. */
  readonly budget: number;
  /** A seed with which it does happen, for the tests in CI; absent until a search has found one. */
  readonly seed?: number;
  readonly patches: readonly Patch[];
}

const patch = (file: string, find: string, replace: string): Patch => ({
  file: `lib/${file}`,
  find,
  replace,
});

const ACQUIRE = 'redlock/acquire.ts';
const ACQUISITIONS = 'stores/redis/acquisitions.ts';
const RELEASES = 'stores/redis/releases.ts';
const PROBE = 'stores/redis/health/server-probe.ts';
const EXCHANGE = 'redlock/exchange.ts';
const EXPIRING = 'redlock/expiring-lock.ts';
const RENEWED = 'redlock/renewed-lock.ts';
const RENEWALS = 'redlock/thread/renewals.ts';
const CLOCK_WATCH = 'redlock/clock-watch.ts';
const RECORD = 'stores/memory/memory-record.ts';
const MEMORY = 'stores/memory/memory-node.ts';

const NO_IDENTITY = patch(
  PROBE,
  'return this.guarded && this.#knowsServer ? identityKey(this.context.keyPrefix) : undefined;',
  'return undefined;',
);

/** All planted errors. */
export const BREAKS: readonly Break[] = [
  {
    name: 'quorum-lowered',
    safety: 'S1',
    expected: ['exclusion', 'token'],
    budget: 10,
    seed: 1,
    patches: [
      patch(
        'redlock/quorum.ts',
        'return Math.floor(nodeCount / 2) + 1;',
        'return Math.max(1, Math.floor(nodeCount / 2));',
      ),
    ],
  },
  {
    name: 'validity-from-the-reply',
    safety: 'S2',
    expected: ['exclusion'],
    budget: 300,
    seed: 14,
    patches: [patch(ACQUIRE, 'const validFrom = this.#validFrom;', 'const validFrom = now();')],
  },
  {
    name: 'no-limit-for-a-node',
    safety: 'S3',
    expected: ['late-call', 'never-settled', 'starved', 'close-hangs'],
    budget: 20,
    seed: 2,
    patches: [
      patch(
        'redlock/validity.ts',
        'return Math.min(configured ?? Math.max(ttl * 0.05, isIdle ? IDLE_NODE_MS : 50), ttl * 0.2);',
        'return configured === -1 && isIdle ? IDLE_NODE_MS + ttl : 1_000_000;',
      ),
    ],
  },
  {
    name: 'no-drift',
    safety: 'S4',
    expected: ['exclusion'],
    budget: 300,
    seed: 40,
    patches: [
      patch(
        'redlock/validity.ts',
        'return ttl - (ttl * driftFactor + EXPIRY_GRANULARITY_MS);',
        'return ttl + 0 * driftFactor * EXPIRY_GRANULARITY_MS;',
      ),
    ],
  },
  {
    name: 'lapsed-lock-returned',
    safety: 'S4',
    expected: ['lapsed', 'exclusion'],
    budget: 300,
    seed: 38,
    patches: [
      patch(
        ACQUIRE,
        'if (taken >= usableTtl(lease.ttl, context.settings.driftFactor)) {',
        'if (taken === -1) {',
      ),
    ],
  },
  {
    name: 'attempts-share-an-id',
    safety: 'S5',
    expected: ['exclusion', 'long-lost'],
    budget: 300,
    seed: 112,
    patches: [
      patch(
        ACQUIRE,
        'this.lease = new Lease(keys, settings.owner, ttl, tick, kind, this.sent);',
        `this.lease = new Lease(keys, settings.owner, ttl, tick, kind, this.sent);
        const first = this.caller as { idOfFirst?: string };
        Object.assign(this.lease, { id: (first.idOfFirst ??= this.lease.id) });`,
      ),
    ],
  },
  {
    name: 'failed-attempt-not-released',
    safety: 'S6',
    expected: ['orphan', 'starved', 'late-call'],
    budget: 10,
    seed: 1,
    patches: [patch(ACQUIRE, 'if (suspects === 0) return;', 'return;')],
  },
  {
    name: 'failed-release-not-repeated',
    safety: 'S6',
    expected: ['orphan', 'starved'],
    budget: 300,
    seed: 33,
    patches: [
      patch(
        RELEASES,
        'if (!this.#pending.has(lease)) this.#pending.set(lease, performance.now());',
        'if (lease.ttl < 0) this.#pending.set(lease, performance.now());',
      ),
    ],
  },
  {
    name: 'release-without-compare',
    safety: 'S7',
    expected: ['exclusion'],
    budget: 20,
    seed: 1,
    patches: [
      patch(
        RECORD,
        'const hold = this.#holds.get(id);\n    if (!hold || hold.kept) return;',
        'const hold = this.#holds.get(id) ?? [...this.#holds.values()][0];\n    if (!hold || hold.kept) return;',
      ),
      patch(RECORD, '    this.end(id);\n  }\n\n  isKept', '    this.end(hold.lease.id);\n  }\n\n  isKept'),
    ],
  },
  {
    name: 'wait-without-limit',
    safety: 'S8',
    expected: ['late-call', 'never-settled'],
    budget: 20,
    seed: 1,
    patches: [
      patch(
        'redlock/wait/waiting-call.ts',
        'return this.wait.retry.timeout - elapsedSince(this.#waiter.since);',
        'return Math.max(1_000, this.wait.retry.timeout - elapsedSince(this.#waiter.since));',
      ),
    ],
  },
  {
    name: 'extension-from-the-reply',
    safety: 'S9',
    expected: ['exclusion'],
    budget: 300,
    seed: 182,
    patches: [
      patch(
        RENEWED,
        "this.validFor(ttl, sent);\n    this.become('held');",
        "this.validFor(ttl, now());\n    this.become('held');",
      ),
    ],
  },
  {
    name: 'no-renewal',
    safety: 'S9',
    expected: ['long-lost'],
    budget: 20,
    seed: 2,
    patches: [
      patch(
        RENEWED,
        'const renewing = renew && !this.isOver(delay);',
        'const renewing = renew && delay < -1e6;',
      ),
    ],
  },
  {
    name: 'loss-not-told',
    safety: 'S10',
    expected: ['late-loss'],
    budget: 10,
    seed: 1,
    patches: [
      patch(
        EXPIRING,
        'this.abort(error);\n    const { lost }',
        'if (this.keys.length === 0) this.abort(error);\n    const { lost }',
      ),
    ],
  },
  {
    name: 'monotonic-clock-only',
    safety: 'S11',
    expected: ['exclusion'],
    budget: 100,
    seed: 82,
    patches: [
      patch(
        'core/clock.ts',
        'return Math.max(performance.now() - start.monotonic, Date.now() - start.wall);',
        'return performance.now() - start.monotonic;',
      ),
      patch(
        EXPIRING,
        'Math.min(this.#endsAt - monotonic, this.#endsAtWall + LOADED_AT - wall)',
        '(this.#endsAt - monotonic)',
      ),
      patch(
        EXPIRING,
        'Math.max(at.monotonic - sent.monotonic, at.wall - sent.wall)',
        '(at.monotonic - sent.monotonic)',
      ),
      patch(CLOCK_WATCH, 'const ahead = Date.now() - time - this.#skew;', 'const ahead = 0;'),
      patch(CLOCK_WATCH, 'const paused = this.#paused(time);', 'const paused = 0;'),
    ],
  },
  {
    name: 'suspend-unnoticed',
    safety: 'S29',
    expected: ['late-loss'],
    budget: 100,
    seed: 26,
    patches: [
      patch(CLOCK_WATCH, 'if (asleep > 0 || paused > 0) this.listener', 'if (paused > 0) this.listener'),
    ],
  },
  {
    name: 'no-guard',
    safety: 'S12',
    expected: ['exclusion'],
    budget: 100,
    seed: 17,
    patches: [
      patch(
        ACQUISITIONS,
        'guard: !probe.guarded ? 0 : probe.age() < guard ? Number.MAX_SAFE_INTEGER : guard,',
        'guard: 0,',
      ),
      patch(ACQUISITIONS, 'return probe.guarded && wait > 0 ?', 'return probe.guarded && wait > 1e15 ?'),
    ],
  },
  {
    name: 'guard-without-uptime',
    safety: 'S12',
    expected: ['exclusion'],
    budget: 300,
    seed: 138,
    patches: [
      patch(
        ACQUISITIONS,
        'guard: !probe.guarded ? 0 : probe.age() < guard ? Number.MAX_SAFE_INTEGER : guard,',
        'guard: !probe.guarded ? 0 : guard,',
      ),
      patch(ACQUISITIONS, 'return probe.guarded && wait > 0 ?', 'return probe.guarded && wait > 1e15 ?'),
      // The identity also notices the restart (S28).
      NO_IDENTITY,
    ],
  },
  {
    name: 'guard-without-identity',
    safety: 'S28',
    expected: ['exclusion'],
    budget: 1_200,
    seed: 363,
    patches: [NO_IDENTITY],
  },
  {
    name: 'identity-only-on-connection',
    safety: 'S28',
    expected: ['exclusion'],
    budget: 300,
    seed: 64,
    patches: [
      // A node that becomes a replica and a master again keeps its connections.
      patch(ACQUISITIONS, 'identity: probe.identity,', 'identity: undefined,'),
    ],
  },
  {
    name: 'ended-lease-sent',
    safety: 'S15',
    expected: ['orphan', 'starved'],
    budget: 800,
    seed: 215,
    patches: [
      patch(
        ACQUISITIONS,
        'if (indexes.every((index) => this.#at(index).lease.mayBeStored)) return indexes;',
        'if (indexes.length > 0) return indexes;',
      ),
      patch(
        ACQUISITIONS,
        'requests.every(({ lease }) => lease.mayBeStored);',
        'requests.every(({ lease }) => lease.ttl > 0);',
      ),
    ],
  },
  {
    name: 'no-deadline',
    safety: 'S16',
    expected: ['orphan', 'starved'],
    budget: 300,
    seed: 86,
    patches: [
      patch(
        ACQUISITIONS,
        'return Math.ceil((this.acquisitions.node.probe.clock.now() ?? 0) + left);',
        'return Number.MAX_SAFE_INTEGER + 0 * left;',
      ),
    ],
  },
  {
    name: 'nested-call-has-another-token',
    safety: 'S18',
    expected: ['nested-token'],
    budget: 60,
    seed: 2,
    patches: [
      patch(
        'service/joined-lock.ts',
        'return this.#lock.fencingToken;',
        'return this.#lock.fencingToken + 1;',
      ),
    ],
  },
  {
    name: 'keys-not-all',
    safety: 'S19',
    expected: ['exclusion', 'token'],
    budget: 20,
    seed: 1,
    patches: [
      patch(
        MEMORY,
        'const refusal = this.#refusal(request, key, index);',
        'const refusal = index > 0 ? undefined : this.#refusal(request, key, index);',
      ),
    ],
  },
  {
    name: 'slots-not-agreed',
    safety: 'S20',
    expected: ['exclusion', 'token'],
    budget: 60,
    seed: 11,
    patches: [
      patch(
        'redlock/tally.ts',
        'return this.#grants ? this.#sameSlots : this.granted;',
        'return this.granted;',
      ),
      // Otherwise the nodes refuse to raise the token of a lock that they stored in another slot.
      patch(
        'redlock/tally.ts',
        'return this.#agreeing >= this.quorum;',
        'return this.#grants !== undefined || this.#agreeing >= this.quorum;',
      ),
    ],
  },
  {
    name: 'writer-joins-readers',
    safety: 'S21',
    expected: ['exclusion'],
    budget: 10,
    seed: 1,
    patches: [
      patch(
        RECORD,
        'if (!this.isHeld || this.joinsReaders(kind.mode)) return undefined;',
        "if (!this.isHeld || this.#mode === 'shared') return undefined;",
      ),
    ],
  },
  {
    name: 'writer-not-marked',
    safety: 'S22',
    expected: ['order', 'starved'],
    budget: 800,
    seed: 377,
    patches: [
      patch(
        'redlock/wait/hold-back.ts',
        'for (const store of this.stores) void this.#ask(store);',
        'for (const store of this.stores.slice(0, 0)) void this.#ask(store);',
      ),
    ],
  },
  {
    name: 'told-by-its-own-grant',
    safety: 'S8',
    expected: ['polling'],
    budget: 100,
    seed: 21,
    patches: [
      patch(
        'redlock/wait/local-queue.ts',
        "this.#isOutvoted = !acquired && (wasGranted || atQueueNode === 'pending');",
        'this.#isOutvoted = false;',
      ),
    ],
  },
  {
    name: 'no-second-release',
    safety: 'S27',
    expected: ['orphan'],
    budget: 300,
    seed: 33,
    patches: [
      patch(
        RELEASES,
        'this.#second.mayComeLater(lease, deadline);',
        'if (deadline < 0) this.#second.mayComeLater(lease, deadline);',
      ),
    ],
  },
  {
    name: 'second-release-of-an-exchange',
    safety: 'S27',
    expected: ['exclusion'],
    budget: 300,
    seed: 121,
    patches: [
      patch(ACQUISITIONS, 'if (isExchange(requests[0] as AcquireRequest)) return;', 'void isExchange;'),
    ],
  },
  {
    name: 'exchange-without-extension',
    safety: 'S9',
    expected: ['exclusion', 'lapsed'],
    budget: 300,
    seed: 135,
    patches: [
      patch(
        EXCHANGE,
        'new Extension(nodes, { lease, extended: resolve }, lease.ttl, limit, sent);',
        "resolve({ kind: 'extended' } as Verdict); void [Extension, limit];",
      ),
    ],
  },
  {
    name: 'exchange-on-fewer-nodes',
    safety: 'S1',
    expected: ['exclusion', 'token'],
    budget: 300,
    seed: 63,
    patches: [
      patch(
        EXCHANGE,
        'const quorum = quorumOf(stores.length);',
        'const quorum = 0 * quorumOf(stores.length) + 1;',
      ),
      patch(
        EXCHANGE,
        'new Extension(nodes, { lease, extended: resolve }, lease.ttl, limit, sent);',
        "resolve({ kind: 'extended' } as Verdict); void [Extension, limit];",
      ),
    ],
  },
  {
    name: 'end-of-the-thread-is-too-late',
    safety: 'S9',
    expected: ['exclusion', 'late-loss'],
    budget: 300,
    seed: 172,
    patches: [
      patch(
        RENEWALS,
        'ends: (end) => slots.setEnd(slot, end),',
        `ends: ({ monotonic, wall }) =>
        slots.setEnd(slot, { monotonic: monotonic + ttl, wall: wall + ttl }),`,
      ),
    ],
  },
  {
    name: 'extension-shortens-others',
    safety: 'S23',
    expected: ['exclusion'],
    budget: 60,
    seed: 1,
    patches: [
      patch(
        RECORD,
        'if (hold && remainingOf(hold) < ttl) Object.assign(hold, { began: now(), ttl });',
        'if (hold) for (const each of this.#holds.values()) Object.assign(each, { began: now(), ttl: Math.min(ttl, 1_000) });',
      ),
    ],
  },
  {
    name: 'no-token-write-back',
    safety: 'J3',
    expected: ['token'],
    budget: 200,
    seed: 16,
    patches: [patch(ACQUIRE, 'if (!tally.isAgreed) return this.#agree();', '')],
  },
  {
    name: 'lost-wake-up',
    safety: 'waiting',
    expected: ['hand-over'],
    budget: 100,
    seed: 9,
    patches: [
      patch(
        'stores/redis/redis-store.ts',
        'onMessage(Number(after), Number(after) === 0,',
        'if (Number(after) < 0) onMessage(Number(after), Number(after) === 0,',
      ),
    ],
  },
  {
    name: 'release-wakes-nobody-elsewhere',
    safety: 'waiting',
    expected: ['hand-over'],
    budget: 1_200,
    seed: 534,
    patches: [
      // Only the nodes that store the lock tell their waiters.
      patch(
        'redlock/release.ts',
        'this.wasHeld = wasHeld && nodes.stores.length > 1;',
        'this.wasHeld = wasHeld && nodes.stores.length > 1_000;',
      ),
    ],
  },
  {
    name: 'outvoted-leases-forgotten',
    safety: 'waiting',
    expected: ['hand-over'],
    budget: 300,
    seed: 107,
    patches: [
      patch(
        'redlock/outvoted.ts',
        'for (const { id, remaining } of holders) this.#ends.set(id, now + remaining);',
        '',
      ),
    ],
  },
  {
    name: 'no-healing',
    safety: 'S26',
    expected: ['long-lost'],
    budget: 100,
    seed: 11,
    patches: [
      patch(
        RENEWED,
        'missedBy(asked: NodeSet): void {\n    if (!this.isHeld() || !this.mayAsk()) return;',
        'missedBy(asked: NodeSet): void {\n    if (asked !== 0) return;',
      ),
    ],
  },
  {
    name: 'healing-without-deadline',
    safety: 'S26',
    expected: ['orphan', 'starved'],
    budget: 800,
    seed: 688,
    patches: [
      patch(
        ACQUISITIONS,
        'const left = Math.min(limit - elapsedSince(this.#asked), LONGEST_DEADLINE_MS);',
        `const left = requests[0]?.heals === true
          ? Number.MAX_SAFE_INTEGER
          : Math.min(limit - elapsedSince(this.#asked), LONGEST_DEADLINE_MS);`,
      ),
    ],
  },
  {
    name: 'healing-released-once',
    safety: 'S26',
    expected: ['orphan', 'starved'],
    budget: 3_200,
    seed: 330,
    patches: [
      patch(
        ACQUISITIONS,
        'for (const { lease } of requests) this.acquisitions.mayComeLater(lease, deadline);',
        `for (const { lease, heals } of requests)
          if (heals !== true) this.acquisitions.mayComeLater(lease, deadline);`,
      ),
    ],
  },
  {
    name: 'healing-lowers-the-token',
    safety: 'S26',
    expected: ['token-lowered'],
    budget: 60,
    seed: 10,
    patches: [
      patch('redlock/healing.ts', 'this.proposal = fencingToken;', 'this.proposal = 0 * fencingToken;'),
    ],
  },
  {
    name: 'thread-stores-what-was-released',
    safety: 'S27',
    expected: ['revived'],
    budget: 300,
    seed: 162,
    patches: [
      patch(
        RENEWALS,
        'const isEnded = (): boolean => !entry.isReturned && slots.isEnded(slot);',
        'const isEnded = (): boolean => entry.isReturned && slots.isEnded(slot);',
      ),
      patch(
        RENEWALS,
        'const isTakenBack = (): boolean => entry.isReturned || !slots.isRenewed(slot);',
        'const isTakenBack = (): boolean => entry.isReturned;',
      ),
    ],
  },
  {
    name: 'thread-stores-what-was-taken-back',
    safety: 'S31',
    expected: ['revived'],
    budget: 300,
    seed: 187,
    patches: [
      patch(
        ACQUISITIONS,
        'requests.every(({ lease }) => lease.mayBeStored);',
        'requests.every(({ lease }) => !lease.ended);',
      ),
    ],
  },
  {
    name: 'release-repeats-at-once',
    safety: 'S6',
    expected: ['endless'],
    budget: 60,
    seed: 1,
    patches: [
      patch(
        'core/pending-releases.ts',
        'if (this.#isClosed || this.size === 0) return;',
        'if (this.size > 0) return queueMicrotask(() => this.sendAgain());',
      ),
    ],
  },
  {
    name: 'timer-left-behind',
    safety: 'close',
    expected: ['left-behind'],
    budget: 60,
    seed: 54,
    patches: [patch(CLOCK_WATCH, 'clearInterval(this.#timer);', '')],
  },
  {
    name: 'tick-not-remembered',
    safety: 'ticks',
    expected: ['tick-twice'],
    budget: 60,
    seed: 1,
    patches: [
      patch('stores/memory/memory-ticks.ts', 'if (!mark) return;', 'if (!mark || mark.at !== -1) return;'),
    ],
  },
];
