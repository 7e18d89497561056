import { MemoryNode } from '../../lib/memory/memory-node.js';
import type { Claim } from '../../lib/redlock/claim.js';
import type { NodeCheck } from '../../lib/redlock/node-status.js';
import type { AcquireReply, AcquireTerms, Listening, LockNode, Look } from '../../lib/redlock/lock-node.js';
import type { Place } from '../../lib/redlock/place.js';

type Request =
  'acquire' | 'raise' | 'extend' | 'release' | 'leave' | 'look' | 'scan' | 'forceRelease' | 'check';

/** What becomes of one request: the reply takes so many ms, never comes, or is an error. */
export type Fate = number | 'hang' | Error;

/**
 * A node that really locks, in memory, and answers as the test says. As on a real connection, a request whose reply
 * hangs has been carried out.
 */
export class ScriptedNode implements LockNode {
  readonly memory = new MemoryNode();
  readonly requests: Request[] = [];
  readonly claims: Claim[] = [];
  fate: Partial<Record<Request, Fate>> = {};
  answering = true;
  readonly hearing = true;

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

  acquire(claim: Claim, terms: AcquireTerms): Promise<AcquireReply> {
    this.claims.push(claim);
    return this.#answer('acquire', () => this.memory.acquire(claim, terms));
  }

  raise(claim: Claim, token: number): Promise<boolean> {
    return this.#answer('raise', () => this.memory.raise(claim, token));
  }

  extend(claims: readonly Claim[], ttl: number): readonly Promise<boolean>[] {
    const answers = this.#answer('extend', () => Promise.all(this.memory.extend(claims, ttl)));
    return claims.map((_, index) => answers.then((each) => each[index] ?? false));
  }

  release(claim: Claim, after?: number): Promise<void> {
    return this.#answer('release', () => this.memory.release(claim, after));
  }

  listen(place: Place, heard: (after: number, turn: boolean) => void): Listening {
    return this.memory.listen(place, heard);
  }

  leave(place: Place): Promise<void> {
    return this.#answer('leave', () => this.memory.leave(place));
  }

  look(keys: readonly string[]): Promise<readonly Look[]> {
    return this.#answer('look', () => this.memory.look(keys));
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
