import { type Answer, fanOut } from '../fan-out.js';
import { KeyRule } from '../store-limits.js';
import { badNumber, badOption, checkOptionNames } from '../../core/checks.js';
import { asError, LockUnavailableError, type NodeVote } from '../../core/errors.js';
import type { HeldLock } from '../held-lock.js';
import type { RedlockSettings } from '../redlock-settings.js';
import { infoOf, type LockInfo, type LockVote, voteOf } from '../../core/lock-info.js';
import { neutrally } from '../../core/neutral.js';
import type { KeyState, KeyWaiter, LockStore, Store } from '../../core/ports.js';
import type { NodeCheck, NodesStatus, NodeStatus } from '../../core/node-status.js';
import { DEFAULT_TTL_MS } from '../../core/lock-options.js';
import { quoted } from '../../core/printable.js';
import { quorumOf } from '../quorum.js';
import { NO_ANSWER } from '../tally.js';
import { nodeTimeLimit } from '../validity.js';

/** Options of {@link LockService.list}. */
export interface ListOptions {
  /**
   * Lists only keys that begin with this text.
   * @defaultValue all keys
   */
  readonly prefix?: string;

  /**
   * Largest number of listed locks.
   * @defaultValue no limit
   */
  readonly limit?: number;
}

/** Options of {@link LockService.forceRelease}. */
export interface ForceReleaseOptions {
  /**
   * Releases only the holder with this `id`: the `id` of its `LockHandle`, which `LockInfo.holders` shows.
   * @defaultValue all holders of the key
   */
  readonly id?: string;

  /**
   * The person or program that requests the release, such as the name of a user, for the event
   * `nestjs-redlock:force-release`.
   * @defaultValue no name
   */
  readonly actor?: string;
}

/** The outcome of a release by force. */
export interface ForcedRelease {
  /** `true` if any node had something to delete. */
  readonly released: boolean;
  /** The error when fewer than a quorum of nodes answered. The nodes that answered may have deleted the key. */
  readonly error?: LockUnavailableError;
}

/** @throws TypeError naming the invalid option */
export function checkForceReleaseOptions(options: ForceReleaseOptions): void {
  checkOptionNames('forceRelease', options, ['id', 'actor']);
  const { id, actor } = options;
  if (id !== undefined && (typeof id !== 'string' || id === ''))
    throw badOption('id', 'the `id` of a holder', id);
  if (actor !== undefined && (typeof actor !== 'string' || actor === ''))
    throw badOption('actor', 'a string that is not empty', actor);
}

/** Reads and ends locks of any process. */
export class LockInspector {
  readonly #nodes: readonly Store[];
  readonly #quorum: number;
  readonly #keyRule: KeyRule;
  readonly #guard: RedlockSettings['guard'] | undefined;
  /** The time limit for the answer of a node, in milliseconds, the same as for a lock with the default ttl. */
  readonly #limit: number;

  /** @param held - the locks that this process holds; the owner of the list keeps it up to date */
  constructor(
    nodes: readonly Store[],
    { nodeTimeout, guard }: Pick<RedlockSettings, 'nodeTimeout'> & Partial<Pick<RedlockSettings, 'guard'>>,
    private readonly held: Iterable<HeldLock>,
  ) {
    this.#nodes = nodes;
    this.#guard = guard;
    this.#quorum = quorumOf(nodes.length);
    this.#keyRule = new KeyRule(nodes);
    this.#limit = nodeTimeLimit(DEFAULT_TTL_MS, nodeTimeout);
  }

  /**
   * @throws LockUnavailableError when fewer than a quorum of nodes answered; RangeError for a key that a node can never
   * store
   */
  inspect(key: string): Promise<LockInfo> {
    return neutrally(() => this.#inspect(key));
  }

  async #inspect(key: string): Promise<LockInfo> {
    this.#keyRule.check([key], 'exclusive');
    const votes = await this.#votesOn(key);
    const error = this.#withoutQuorum([key], `inspect ${quoted([key])}`, votes);
    if (error) throw error;
    return infoOf(key, votes, this.#quorum);
  }

  /**
   * Reads the keys of one node after another, page by page, so that memory holds only one page. A key that an earlier
   * node also has is not listed again. A quorum of nodes must be read completely, so that no held lock is missing.
   *
   * @throws TypeError or RangeError for invalid options; LockUnavailableError while iterating, when no quorum of nodes
   * answered
   */
  list(options: ListOptions = {}): AsyncIterable<LockInfo> {
    checkOptionNames('list', options, ['prefix', 'limit']);
    const { prefix = '', limit = Infinity } = options;
    if (typeof prefix !== 'string') throw badOption('prefix', 'a string', prefix);
    if (limit !== Infinity && !(Number.isInteger(limit) && limit >= 1)) {
      throw badNumber('limit', 'a whole number, at least 1', limit);
    }
    return stepwise(this.#list(prefix, limit));
  }

  /**
   * Reads the waiters of all processes in the queues of these keys, by key and in order. A key without waiters has no
   * entry. The queue of a node that does not answer is left out without an error: a queue only orders waiters, and no
   * lock depends on it.
   */
  waiting(keys: readonly string[]): Promise<ReadonlyMap<string, readonly KeyWaiter[]>> {
    return neutrally(() => this.#waiting(keys));
  }

  async #waiting(keys: readonly string[]): Promise<ReadonlyMap<string, readonly KeyWaiter[]>> {
    const found = new Map<string, KeyWaiter[]>();
    let nodes = this.#nodes.filter((node) => node.waiting);
    for (let start = 0; start < keys.length && nodes.length > 0; start += QUEUES_OF_PAGE) {
      const page = keys.slice(start, start + QUEUES_OF_PAGE);
      const answers = await fanOut(
        nodes,
        this.#limit,
        (node) => node.waiting?.(page) ?? Promise.resolve([]),
        () => false,
      );
      // A silent node takes its whole time limit, so it is asked only once and not for each page.
      nodes = answers.filter(({ error }) => !error).map(({ node }) => node);
      for (const [index, key] of page.entries()) {
        const queue = joined(answers.flatMap(({ reply }) => [reply?.[index] ?? []]));
        if (queue.length > 0) found.set(key, queue);
      }
    }
    return found;
  }

  /**
   * Releases the holders that the key has at the start of the call, or only the holder with `id`.
   *
   * @returns `true` if any node had something to delete
   * @throws LockUnavailableError when fewer than a quorum of nodes answered. The nodes that answered may have deleted
   * the key
   */
  async forceRelease(key: string, options: ForceReleaseOptions = {}): Promise<boolean> {
    const { released, error } = await this.endHolders(key, options);
    if (error) throw error;
    return released;
  }

  /**
   * Like {@link forceRelease}, but returns an error instead of throwing it, so that the caller also learns whether a
   * node had something to delete.
   */
  endHolders(key: string, options: ForceReleaseOptions = {}): Promise<ForcedRelease> {
    return neutrally(() => this.#endHolders(key, options));
  }

  async #endHolders(key: string, { id }: ForceReleaseOptions): Promise<ForcedRelease> {
    this.#keyRule.check([key], 'exclusive');
    const what = `release ${quoted([key])}`;
    const votes = await this.#votesOn(key);
    const unread = this.#withoutQuorum([key], what, votes);
    if (unread) return { released: false, error: unread };
    const found = votes.flatMap((vote) => (vote.vote === 'held' ? vote.holders.map((each) => each.id) : []));
    const ids = [...new Set(found)].filter((each) => id === undefined || each === id);
    if (ids.length === 0) return { released: false };
    const answers = await this.#askAll(
      (node) => node.forceRelease?.(key, ids) ?? cannot('end locks of other holders'),
    );
    // Iterate over a copy: a lost lock leaves the list, and its listeners may release other locks.
    for (const lock of [...this.held]) {
      const gone = answers.filter(({ reply }) => reply?.includes(lock.id)).length;
      if (gone > this.#nodes.length - this.#quorum) lock.lose('it was released by force');
    }
    const released = answers.some(({ reply }) => reply !== undefined && reply.length > 0);
    const error = this.#withoutQuorum([key], what, answers.map(voteOnRelease));
    return error ? { released, error } : { released };
  }

  /** The fitness of every node to vote. Never rejects. */
  checkNodes(): Promise<NodesStatus> {
    return neutrally(() => this.#checkNodes());
  }

  async #checkNodes(): Promise<NodesStatus> {
    const answers = await this.#askAll(
      (node) => node.check?.(this.#guard?.duration ?? 0) ?? Promise.resolve(UNCHECKED),
    );
    const nodes = this.#nodes.map((node): NodeStatus => {
      const { error, reply } = answers.find((answer) => answer.node === node) ?? {};
      if (reply) return { node: node.name, ...reply };
      return { node: node.name, state: 'unreachable', reason: error?.message ?? '', warnings: [] };
    });
    const available = nodes.filter(({ state }) => state === 'voting').length >= this.#quorum;
    return { available, quorum: this.#quorum, nodes };
  }

  async *#list(prefix: string, limit: number): AsyncGenerator<LockInfo> {
    const scanned = new Set<LockStore>();
    const failed: NodeVote[] = [];
    let left = limit;
    for (const node of this.#nodes) {
      const pages = pagesOf(node, prefix);
      try {
        let page = await this.#next(node, pages);
        for (; page.reply?.done === false; page = await this.#next(node, pages)) {
          for (const info of await this.#infosOf(page.reply.value)) {
            if (!this.#isNew(info, scanned)) continue;
            yield info;
            left--;
            if (left === 0) return;
          }
        }
        if (page.error) failed.push(errorVote(node, page.error));
        else scanned.add(node);
      } finally {
        void end(pages);
      }
    }
    if (scanned.size < this.#quorum) throw this.#unavailable([], LIST, failed);
  }

  /** The next page of one node, or the reason why the node gave no page. */
  async #next(node: Store, pages: AsyncIterator<readonly string[]>): Promise<Answer<Page>> {
    const answers = await fanOut(
      [node],
      this.#limit,
      () => pages.next(),
      () => true,
    );
    // The question went to one node, so there is one answer.
    return answers[0] as Answer<Page>;
  }

  async #infosOf(keys: readonly string[]): Promise<readonly LockInfo[]> {
    if (keys.length === 0) return [];
    const answers = await this.#askAll((node) => node.read?.(keys) ?? cannot('show locks'));
    const failed = answers.flatMap(({ node, error }) => (error ? [errorVote(node, error)] : []));
    if (answers.length - failed.length < this.#quorum) throw this.#unavailable([], LIST, failed);
    return keys.map((key, index) => infoOf(key, this.#votesAt(answers, index), this.#quorum));
  }

  /** `true` if the lock is still stored, unless it was certainly listed when another node was scanned. */
  #isNew({ votes, held, holders }: LockInfo, scanned: ReadonlySet<LockStore>): boolean {
    const [before, others] = [new Set<string>(), new Set<string>()];
    for (const [index, node] of this.#nodes.entries()) {
      const vote = votes[index];
      if (vote?.vote !== 'held') continue;
      for (const { id } of vote.holders) (scanned.has(node) ? before : others).add(id);
    }
    // List a held lock unless the scanned nodes have all its holders. One holder on a scanned node does not prove that
    // the lock was listed: the node may have stored the holder after its scan, or may briefly store a failed attempt.
    if (held) return holders.some(({ id }) => !before.has(id));
    return before.size === 0 && others.size > 0;
  }

  async #votesOn(key: string): Promise<readonly LockVote[]> {
    return this.#votesAt(await this.#askAll((node) => node.read?.([key]) ?? cannot('show locks')), 0);
  }

  /** The votes on the key at position `index` of the request, in the order of the nodes. */
  #votesAt(answers: readonly Answer<readonly KeyState[]>[], index: number): LockVote[] {
    return this.#nodes.map((node) => {
      const answer = answers.find((each) => each.node === node);
      return voteOf(node, answer?.error ?? answer?.reply?.[index]);
    });
  }

  #askAll<T>(ask: (node: Store) => Promise<T>): Promise<readonly Answer<T>[]> {
    return fanOut(this.#nodes, this.#limit, ask, () => false);
  }

  /** The error when fewer than a quorum of nodes answered. */
  #withoutQuorum(
    keys: readonly string[],
    what: string,
    votes: readonly NodeVote[],
  ): LockUnavailableError | undefined {
    const isQuorum = votes.filter(({ error }) => !error).length >= this.#quorum;
    return isQuorum ? undefined : this.#unavailable(keys, what, votes);
  }

  #unavailable(keys: readonly string[], what: string, votes: readonly NodeVote[]): LockUnavailableError {
    const without = votes.filter(({ error }) => error).length;
    const reason =
      this.#nodes.length === 1
        ? NO_ANSWER
        : `${this.#quorum} of ${this.#nodes.length} nodes must answer, and ${without} did not`;
    return new LockUnavailableError(keys, reason, votes, what);
  }
}

/** Largest number of queues that one request reads: the number of keys of a page of a scan. */
const QUEUES_OF_PAGE = 500;

type Page = IteratorResult<readonly string[], unknown>;

const LIST = 'list all locks';

/**
 * The result for a store that cannot report its fitness. Only an attempt to lock then shows whether the store answers.
 */
const UNCHECKED: NodeCheck = { state: 'voting', warnings: [] };

/**
 * Joins the queues of several nodes into one. When processes see different nodes fail, their waiters are in the queues
 * of different nodes.
 */
function joined(queues: readonly (readonly KeyWaiter[])[]): KeyWaiter[] {
  const [only, ...others] = queues.filter(({ length }) => length > 0);
  if (!only) return [];
  if (others.length === 0) return [...only];
  const found = new Map<string, KeyWaiter>();
  for (const waiter of [...only, ...others.flat()]) {
    const name = `${waiter.process} ${waiter.number}`;
    if (!found.has(name)) found.set(name, waiter);
  }
  return [...found.values()].toSorted((a, b) => a.since - b.since);
}

function cannot(what: string): Promise<never> {
  return Promise.reject(new Error(`this store cannot ${what}`));
}

/** Reads `items` outside of the reader's asynchronous context: the requests use connections that other calls share (S30). */
async function* stepwise<T>(items: AsyncGenerator<T>): AsyncGenerator<T> {
  try {
    for (;;) {
      const { done, value } = await neutrally(() => items.next());
      if (done === true) return;
      yield value;
    }
  } finally {
    await neutrally(() => items.return(undefined));
  }
}

/** Ends the scan of a node, so that the store can close its cursor. Do not await it: a node may never answer. */
async function end(pages: AsyncIterator<unknown>): Promise<void> {
  try {
    await pages.return?.();
  } catch {
    // The list does not need the scan any more.
  }
}

/** Begins the scan of a node. A store of the application may throw in `scan`, in place of a rejection of `next`. */
function pagesOf(node: Store, prefix: string): AsyncIterator<readonly string[]> {
  try {
    return node.scan?.(prefix)[Symbol.asyncIterator]() ?? { next: () => cannot('show locks') };
  } catch (error) {
    return { next: () => Promise.reject(asError(error)) };
  }
}

function errorVote({ name }: LockStore, error: Error): NodeVote {
  return { node: name, vote: 'error', error };
}

function voteOnRelease({ node, error }: Answer<unknown>): NodeVote {
  return error ? errorVote(node, error) : { node: node.name, vote: 'free' };
}
