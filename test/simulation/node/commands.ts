import type { YoungBecause } from '../../../lib/core/errors.js';
import type { AcquireReply, AcquireRequest, ReleaseRequest } from '../../../lib/core/ports.js';
import type { Lease } from '../../../lib/core/lease.js';
import type { WaiterId } from '../../../lib/core/waiter-id.js';
import type { Exchange } from '../../../lib/stores/redis/scripts/exchange.js';
import type { FormerServer } from '../../../lib/stores/redis/scripts/birth.js';

/** A command of the library to a simulated node. It takes the place of a script and its arguments. */
export type Command =
  | {
      readonly name: 'acquire';
      readonly requests: readonly AcquireRequest[];
      readonly ordered: boolean;
      /** `true` if the node keeps a marker. */
      readonly marked: boolean;
      /** The clock of the client, if the node keeps its identity. */
      readonly wall: number | undefined;
      readonly deadline: number;
      readonly guard: number;
    }
  | {
      readonly name: 'exchange';
      readonly request: Exchange;
      readonly marked: boolean;
      readonly wall: number | undefined;
      readonly deadline: number;
      readonly guard: number;
    }
  | { readonly name: 'extend'; readonly leases: readonly Lease[]; readonly ttl: number }
  | { readonly name: 'release'; readonly requests: readonly ReleaseRequest[] }
  | { readonly name: 'raise'; readonly lease: Lease; readonly token: number; readonly marked: boolean }
  | { readonly name: 'holdBack'; readonly waiter: WaiterId; readonly waited: number }
  | { readonly name: 'letPass' | 'leave'; readonly waiter: WaiterId }
  | { readonly name: 'forceRelease'; readonly key: string; readonly ids: readonly string[] }
  | { readonly name: 'read' | 'waiting'; readonly keys: readonly string[] }
  | {
      readonly name: 'birth';
      readonly marked: boolean;
      readonly wall?: number;
      readonly former?: FormerServer;
    }
  | { readonly name: 'probe' | 'probeKinds' };

export type CommandName = Command['name'];

/** The commands that change data. */
export const WRITES: ReadonlySet<CommandName> = new Set<CommandName>([
  ...(['acquire', 'exchange', 'extend', 'release', 'raise', 'holdBack', 'letPass', 'leave'] as const),
  ...(['forceRelease', 'birth', 'probe', 'probeKinds'] as const),
]);

/** The answer to one request of an acquisition; the last answer of a command is the time in microseconds. */
export type Answer =
  | { readonly reply: AcquireReply; readonly waiting: boolean }
  | { readonly late: number }
  | { readonly young: number; readonly because?: YoungBecause }
  | Error
  | number;
