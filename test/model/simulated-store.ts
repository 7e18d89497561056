import type { Lease } from '../../lib/core/lease.js';
import { GuardedNodeError, NoTimeError } from '../../lib/core/errors.js';
import type { AcquireReply, AcquireRequest, LockStore, QuorumStore, Tell } from '../../lib/core/ports.js';
import type { Answer } from '../simulation/node/commands.js';
import { SimulatedNode } from '../simulation/node/simulated-node.js';

/** The part of a store that sends messages about records. */
export type RecordStore = Pick<LockStore & QuorumStore, 'acquire' | 'extend' | 'release' | 'close' | 'raise'>;

/** A store on one node of the simulator, without a network: the node executes each command at once. */
export class SimulatedStore implements RecordStore {
  readonly #node = new SimulatedNode(
    () => 1,
    () => ({ runId: 'the only run', history: 'the only one', wasReplica: false }),
  );

  acquire(requests: readonly AcquireRequest[], ordered: boolean, tell: Tell<AcquireReply>): void {
    const [{ limit, guard }] = requests as [AcquireRequest];
    const wall = Date.now();
    const answers = this.#node.execute({
      ...{ name: 'acquire', ordered, marked: true, wall, guard },
      deadline: wall + limit,
      // A client sends no request without time. A late request has become late on its way.
      requests: requests.map((request) => ({ ...request, limit: Math.max(1, limit) })),
    }) as Answer[];
    for (const index of requests.keys()) tell(index, replyOf(answers[index] as Answer));
  }

  extend(leases: readonly Lease[], ttl: number, tell: Tell<boolean>): void {
    const answer = this.#node.execute({ name: 'extend', leases, ttl }) as string;
    for (const index of leases.keys()) tell(index, answer[index] === '1');
  }

  release(requests: Parameters<LockStore['release']>[0], tell: Tell<undefined>): void {
    this.#node.execute({ name: 'release', requests });
    for (const index of requests.keys()) tell(index, undefined);
  }

  raise(lease: Lease, token: number): Promise<boolean> {
    return Promise.resolve(this.#node.execute({ name: 'raise', lease, token, marked: true }) === 1);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

function replyOf(answer: Answer): AcquireReply | Error {
  if (answer instanceof Error) return answer;
  if (typeof answer === 'number') return new Error(`unexpected answer: ${answer}`);
  if ('late' in answer) return new NoTimeError('too late');
  if ('young' in answer) return new GuardedNodeError(answer.young);
  return answer.reply;
}
