import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import type { Lease } from '../../lib/core/lease.js';
import type { NodeCheck } from '../../lib/core/node-status.js';
import type { AcquireReply, AcquireTerms, Listening, LockStore, KeyState } from '../../lib/core/ports.js';
import type { WaiterId } from '../../lib/core/waiter-id.js';

type Request =
  'acquire' | 'raise' | 'extend' | 'release' | 'leave' | 'look' | 'scan' | 'forceRelease' | 'check';

/** What becomes of one request: the reply takes so many ms, never comes, or is an error. */
export type Fate = number | 'hang' | Error;

/**
 * A node that really locks, in memory, and answers as the test says. As on a real connection, a request whose reply
 * hangs has been carried out.
 */
export class ScriptedNode implements LockStore {
  readonly memory = new MemoryStore();
  readonly requests: Request[] = [];
  readonly claims: Lease[] = [];
  fate: Partial<Record<Request, Fate>> = {};
  available = true;
  readonly subscribed = true;

  constructor(readonly name = 'node') {}

  connect(): Promise<void> {
    return Promise.resolve();
  }

  contended(): boolean {
    return this.memory.contended();
  }

  time(): number {
    return this.memory.time();
  }

  acquire(claim: Lease, terms: AcquireTerms): Promise<AcquireReply> {
    this.claims.push(claim);
    return this.#answer('acquire', () => this.memory.acquire(claim, terms));
  }

  raise(claim: Lease, token: number): Promise<boolean> {
    return this.#answer('raise', () => this.memory.raise(claim, token));
  }

  extend(claims: readonly Lease[], ttl: number): readonly Promise<boolean>[] {
    const answers = this.#answer('extend', () => Promise.all(this.memory.extend(claims, ttl)));
    return claims.map((_, index) => answers.then((each) => each[index] ?? false));
  }

  release(claim: Lease, after?: number): Promise<void> {
    return this.#answer('release', () => this.memory.release(claim, after));
  }

  listen(place: WaiterId, heard: (after: number, turn: boolean) => void): Listening {
    return this.memory.listen(place, heard);
  }

  leave(place: WaiterId): Promise<void> {
    return this.#answer('leave', () => this.memory.leave(place));
  }

  read(keys: readonly string[]): Promise<readonly KeyState[]> {
    return this.#answer('look', () => this.memory.read(keys));
  }

  async *scan(prefix: string): AsyncGenerator<readonly string[]> {
    for await (const page of this.memory.scan(prefix))
      yield this.#answer('scan', () => Promise.resolve(page));
  }

  forceRelease(key: string, ids: readonly string[]): Promise<string | undefined> {
    return this.#answer('forceRelease', () => this.memory.forceRelease(key, ids));
  }

  check(): Promise<NodeCheck> {
    return this.#answer('check', () => this.memory.check());
  }

  close(): Promise<void> {
    return this.memory.close();
  }

  count(request: Request): number {
    return this.requests.filter((each) => each === request).length;
  }

  #answer<T>(request: Request, carryOut: () => Promise<T>): Promise<T> {
    this.requests.push(request);
    const fate = this.fate[request] ?? 0;
    if (fate instanceof Error) return Promise.reject(fate);
    const reply = carryOut();
    if (fate === 'hang') return new Promise(() => {});
    return fate === 0 ? reply : new Promise((resolve) => setTimeout(() => resolve(reply), fate));
  }
}

/** So many scripted nodes, named `a`, `b`, `c` and so on. */
export function scriptedNodes(count: number): ScriptedNode[] {
  return Array.from({ length: count }, (_, index) => new ScriptedNode(String.fromCharCode(97 + index)));
}
