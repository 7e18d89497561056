import { type Log, quiet, STDERR_LOG } from '../core/log.js';
import { hostname } from 'node:os';
import { eventListener } from './event-listener.js';
import { Declarations } from '../service/declarations.js';
import type { LockSite } from '../service/lock-site.js';
import { NodeLog } from './node-log.js';
import { LockTelemetry } from '../telemetry/lock-telemetry.js';
import { LockRuntime } from '../service/lock-runtime.js';
import { Transactions } from '../service/transactions.js';
import type { StoreContext } from '../stores/redis/store-context.js';
import { countNodes, openStores, type StoreTitle, titleIn } from './open-stores.js';
import { checkModuleOptions, type RedlockModuleOptions } from './redlock.options.js';
import { type Answer, fanOut } from '../redlock/fan-out.js';
import { asError, ClosedStoreError, UnfitStoreError } from '../core/errors.js';
import { DEFAULT_TTL_MS } from '../core/lock-options.js';
import { LockInspector } from '../redlock/inspect/lock-inspector.js';
import type { RenewalThread } from '../redlock/renewal-ports.js';
import type { RedlockSettings } from '../redlock/redlock-settings.js';
import { RestartGuard } from '../redlock/restart-guard.js';
import type { Store } from '../core/ports.js';
import { WakeableSleep } from '../redlock/wait/wakeable-sleep.js';
import { freeAfter, quorumOf } from '../redlock/quorum.js';
import { Redlock } from '../redlock/redlock.js';
import { newRenewalThread, unneededThread } from './thread/module-thread.js';
import type { ThreadTerms } from './thread/thread-terms.js';
import { DEFAULT_DRIFT_FACTOR } from '../redlock/validity.js';

/** Longest wait of start-up for a quorum of nodes, in milliseconds. */
const CONNECT_LIMIT_MS = 5_000;

/**
 * Longest pause in milliseconds before start-up asks the nodes again whether they vote (`waitForQuorum`).
 */
const VOTES_AGAIN_MS = 500;

/** Longest time in milliseconds that start-up waits for the other nodes after a quorum has connected. */
const STRAGGLER_LIMIT_MS = 200;

/** Arguments of {@link makeRuntime} besides the options of the module. */
export interface RuntimeParts {
  /** The name of the module. */
  readonly name?: string | undefined;
  /**
   * The log of the application.
   * @defaultValue the standard error stream
   */
  readonly log?: Log;
  /** Decorated methods of the application that are known so far. */
  readonly sites?: readonly LockSite[];
  /** `nestjs-redlock/testing` replaces this function and the class `LockRuntime`. */
  readonly nodesOf?: (
    options: RedlockModuleOptions,
    context: StoreContext,
    nodeLog: NodeLog,
  ) => readonly Store[];
  readonly Runtime?: new (...args: ConstructorParameters<typeof LockRuntime>) => LockRuntime;
  /** The simulator of the tests replaces the thread that renews locks. */
  readonly threadOf?: (terms: ThreadTerms, guard: RestartGuard) => RenewalThread;
}

/**
 * Checks the options of a module, and creates its runtime without a connection: if another step of start-up fails, no
 * connection stays open. {@link LockRuntime.open} connects the nodes.
 *
 * @throws TypeError or RangeError naming the wrong option
 */
export function makeRuntime(
  options: RedlockModuleOptions,
  {
    name,
    sites = [],
    log: givenLog = STDERR_LOG,
    nodesOf: open = openStores,
    Runtime: Made = LockRuntime,
    threadOf,
  }: RuntimeParts = {},
): LockRuntime {
  checkModuleOptions(options);
  const log = quiet(givenLog);
  const guard = guardOf(options);
  const isClosing = (): boolean => runtime.isClosed;
  const nodeLog = new NodeLog(log, countNodes(options), isClosing);
  const context: StoreContext = {
    keyPrefix: options.keyPrefix ?? 'lock:',
    guarded: guard.duration > 0,
    mayForget: options.restartGuard === false && !isGuardedByDefault(options),
    several: countNodes(options) > 1,
    names: new Set(),
    runIds: new Map(),
    warnOnce: once((message) => log.warn(message)),
    nodeLost: (node) => nodeLog.lost(`Redis at ${node}`),
    nodeReady: (node) => nodeLog.ready(`Redis at ${node}`),
  };
  const nodes = open(options, context, nodeLog);
  const title = titleIn(options);
  const terms = threadTermsOf(options, context);
  const settings: RedlockSettings = {
    thread:
      threadOf?.(terms, guard) ??
      (open === openStores
        ? newRenewalThread(options, terms, guard, { instance: name, log, warnOnce: context.warnOnce })
        : unneededThread(log)),
    owner: options.owner ?? `${hostname()}:${process.pid}`,
    driftFactor: options.driftFactor ?? DEFAULT_DRIFT_FACTOR,
    nodeTimeout: options.nodeTimeout,
    keyPrefix: context.keyPrefix,
    guard,
    // Do not log each lost lock during a shutdown: the module then logs all remaining locks in one line.
    lost: ({ message }) => {
      if (!isClosing()) log.warn(message);
    },
    unclosed: (store, { message }) =>
      log.warn(`${title.of(store)} could not be closed, and may keep connections open: ${message}`),
  };
  const redlock = new Redlock(nodes, settings);
  if (options.defaults?.ttl !== undefined) redlock.foresee(options.defaults.ttl);
  if (options.defaults?.renew === 'thread') redlock.foreseeThread();
  const inspection = new LockInspector(nodes, settings, redlock.held);
  const runtime: LockRuntime = new Made(
    redlock,
    inspection,
    new LockTelemetry(name, eventListener(options.onEvent, log)),
    options.defaults ?? {},
    options.shutdownTimeout ?? 10_000,
    async () => {
      const begun = performance.now();
      await connect(nodes, log, nodeLog, title, isClosing);
      const { waitForQuorum } = options;
      if (waitForQuorum !== undefined)
        await untilVoting(inspection, waitForQuorum, begun, log, title, isClosing);
    },
    log,
    new Declarations({ ...options, instance: name }, log),
    transactionsOf(options, log),
  );
  runtime.foresee(sites);
  return runtime;
}

/**
 * Creates a runtime as {@link makeRuntime} does, and opens it as {@link LockRuntime.open} does.
 *
 * @throws the errors of {@link makeRuntime} and {@link LockRuntime.open}
 */
export async function openRuntime(
  options: RedlockModuleOptions,
  parts: RuntimeParts = {},
): Promise<LockRuntime> {
  const runtime = makeRuntime(options, parts);
  await runtime.open();
  return runtime;
}

function transactionsOf(
  { inTransaction, afterTransaction }: RedlockModuleOptions,
  log: Log,
): Transactions | undefined {
  return inTransaction && new Transactions({ inTransaction, afterTransaction }, log);
}

/** Wraps a log function so that it logs the same message only once. */
function once(say: (message: string) => void): (message: string) => void {
  const said = new Set<string>();
  return (message) => {
    if (!said.has(message)) say(message);
    said.add(message);
  };
}

/**
 * `true` if a restarted node must by default wait before it votes. With two nodes a quorum is both nodes: when one
 * restarts without its data, the other still refuses. With a single node the guard would stop all locks, because no
 * other node votes.
 */
function isGuardedByDefault(options: RedlockModuleOptions): boolean {
  return countNodes(options) >= 3;
}

/** The milliseconds of a fixed restart guard, 0 without a guard; `undefined` for the largest ttl in use. */
function fixedGuardOf(options: RedlockModuleOptions): number | undefined {
  const { restartGuard = isGuardedByDefault(options) ? undefined : false } = options;
  return restartGuard === false ? 0 : restartGuard;
}

function threadTermsOf(options: RedlockModuleOptions, context: StoreContext): ThreadTerms {
  const { guarded, several, mayForget = false, keyPrefix } = context;
  const { driftFactor = DEFAULT_DRIFT_FACTOR, nodeTimeout } = options;
  return { guarded, several, mayForget, keyPrefix, driftFactor, nodeTimeout, guard: fixedGuardOf(options) };
}

function guardOf(options: RedlockModuleOptions): RestartGuard {
  const { defaults } = options;
  const guard = new RestartGuard(fixedGuardOf(options));
  if (defaults) guard.note(defaults.ttl ?? DEFAULT_TTL_MS);
  return guard;
}

/**
 * Resolves when a quorum is connected, or at the latest after {@link CONNECT_LIMIT_MS}: the application starts even if
 * its nodes are unreachable. The nodes may connect later; until then every acquisition fails with the reason.
 *
 * @throws Error when a server is not fit for locks, such as a replica
 */
async function connect(
  nodes: readonly Store[],
  log: Log,
  nodeLog: NodeLog,
  title: StoreTitle,
  isClosing: () => boolean,
): Promise<void> {
  const quorum = quorumOf(nodes.length);
  const connecting = new Map(nodes.map((node) => [node, connectLoudly(node, log, nodeLog, title)]));
  const asked = (node: Store): Promise<void> => connecting.get(node) ?? Promise.resolve();
  const first = await fanOut(nodes, CONNECT_LIMIT_MS, asked, (soFar) => connected(soFar) >= quorum);
  // Wait a little longer for the other nodes, so that the start already reports a node that must not be used.
  const answers =
    connected(first) < quorum ? first : await fanOut(nodes, STRAGGLER_LIMIT_MS, asked, () => false);

  for (const { node, error } of answers) {
    if (error instanceof UnfitStoreError)
      throw new Error(`${title.of(node)} ${error.message}`, { cause: error });
  }
  if (connected(answers) < quorum && !isClosing()) {
    log.error(
      `${connected(answers)} of ${nodes.length} ${title.ofAll} are connected and ${quorum} are needed: ` +
        'nothing can be locked until more of them are reachable.',
    );
  }
}

/** Waits until a quorum of nodes votes or the application shuts down, at most `limit` milliseconds after `begun`. */
async function untilVoting(
  inspection: LockInspector,
  limit: number,
  begun: number,
  log: Log,
  title: StoreTitle,
  isClosing: () => boolean,
): Promise<void> {
  for (let first = true; ; first = false) {
    const { available, quorum, nodes } = await inspection.checkNodes();
    if (available || isClosing()) return;
    const left = limit - (performance.now() - begun);
    if (left <= 0) {
      const voting = nodes.filter(({ state }) => state === 'voting').length;
      const reasons = nodes.flatMap(({ node, reason }) =>
        reason === undefined ? [] : [`${node}: ${reason}`],
      );
      log.error(
        `After ${limit} ms (waitForQuorum), ${voting} of ${nodes.length} ${title.ofAll} vote and ${quorum} are needed: ` +
          `nothing can be locked until more of them vote; ${reasons.join('; ')}`,
      );
      return;
    }
    if (first) {
      log.log(
        `Waiting until ${quorum} of ${nodes.length} ${title.ofAll} vote, for ${limit} ms at most (waitForQuorum)`,
      );
    }
    const waits = nodes.map(({ state, votesIn = VOTES_AGAIN_MS }) => (state === 'voting' ? 0 : votesIn));
    await new WakeableSleep().for(Math.min(freeAfter(waits, quorum), VOTES_AGAIN_MS, left), []);
  }
}

async function connectLoudly(node: Store, log: Log, nodeLog: NodeLog, title: StoreTitle): Promise<void> {
  try {
    await node.connect();
  } catch (error) {
    if (!(error instanceof UnfitStoreError) && !(error instanceof ClosedStoreError)) {
      nodeLog.unreached(title.of(node));
      // The message of the store contains the remedy.
      const reason = asError(error).message.replace(/\.$/, '');
      log.warn(`Cannot reach ${title.of(node)}: ${reason}. Trying again in the background.`);
    }
    throw error;
  }
}

function connected(answers: readonly Answer<void>[]): number {
  return answers.filter(({ error }) => !error).length;
}
