// Takes the place of `lib/stores/redis/scripts/node-scripts.ts` in the simulated library. A script is a name, and its
// arguments are one object.
import { NoTimeError, type YoungBecause } from '../../../lib/core/errors.js';
import type { Lease } from '../../../lib/core/lease.js';
import type { AcquireReply, KeyState, KeyWaiter } from '../../../lib/core/ports.js';
import type { WaiterId } from '../../../lib/core/waiter-id.js';
import type { Packed } from '../../../lib/stores/redis/scripts/script.js';
import type { AcquireCommand } from '../../../lib/stores/redis/scripts/acquire-command.js';
import type { ModeScripts } from '../../../lib/stores/redis/scripts/mode-scripts.js';
import type { Exchange } from '../../../lib/stores/redis/scripts/exchange.js';
import type { NodeScripts } from '../../../lib/stores/redis/scripts/node-scripts.js';
import type { Script } from '../../../lib/stores/redis/scripts/script.js';
import type { Answer, Command, CommandName } from './commands.js';

const script = (name: CommandName): Script => ({ sha: name, lua: `text of ${name}` });
const pack = (command: Command): Packed => [0, command as unknown as string];

/** Copies a lease, whose properties depend on the time, as a client copies it into the arguments of a script. */
function copied(lease: Lease): Lease {
  const { id, keys, owner, ttl, kind, tick, slots, keepFor, mark } = lease;
  return { id, keys, owner, ttl, kind, tick, slots, keepFor, mark } as Lease;
}

const acquire: ModeScripts['acquire'] = {
  script: script('acquire'),
  pack: (requests, { ordered, marker, identity, deadline, guard, wall }: AcquireCommand) =>
    pack({
      name: 'acquire',
      requests: requests.map(({ lease, since, proposal, position, wish, limit, guard: least, heals }) => ({
        lease: copied(lease),
        ...{ since, proposal, position, wish, limit, guard: least, heals },
      })),
      ...{ ordered, marked: marker !== undefined, deadline, guard },
      wall: identity === undefined ? undefined : wall,
    }),
  read: (answer): AcquireReply | Error => {
    const told = answer as Exclude<Answer, number>;
    if (told instanceof Error) return told;
    if ('late' in told) return new NoTimeError(`got the request ${told.late} ms too late, and did nothing`);
    if ('reply' in told) return told.reply;
    return new Error('unexpected answer');
  },
};

const exchange: ModeScripts['acquire'] = {
  script: script('exchange'),
  pack: ([request], { marker, identity, deadline, guard, wall }: AcquireCommand) => {
    const { lease, since, replaces, ...rest } = request as Exchange;
    return pack({
      name: 'exchange',
      request: { ...rest, lease: copied(lease), since, replaces },
      ...{ marked: marker !== undefined, deadline, guard },
      wall: identity === undefined ? undefined : wall,
    });
  },
  read: acquire.read,
};

const scripts: ModeScripts = {
  acquire,
  extend: {
    script: script('extend'),
    pack: (leases, ttl) => pack({ name: 'extend', leases: leases.map(copied), ttl }),
  },
  release: {
    script: script('release'),
    pack: (requests) =>
      pack({
        name: 'release',
        requests: requests.map(({ lease, pause, wasHeld, isSecond }) => {
          const same = copied(lease);
          return {
            lease: isSecond === true ? ({ ...same, mark: undefined } as Lease) : same,
            pause,
            wasHeld,
          };
        }),
      }),
  },
  raise: {
    script: script('raise'),
    pack: (lease, token, _, marker) =>
      pack({ name: 'raise', lease: copied(lease), token, marked: marker !== undefined }),
  },
};

const aboutWaiter =
  (name: 'letPass' | 'leave') =>
  (waiter: WaiterId): Packed =>
    pack({ name, waiter });

export const nodeScripts: NodeScripts = {
  modes: ['exclusive', 'shared', 'permits'],
  of: () => scripts,
  asked: (request) => ('replaces' in request ? exchange : acquire),
  acquire: {
    answers: (reply) => reply as Answer[],
    isPlain: () => true,
    isTooLate: (answer) => (answer as { late?: number }).late !== undefined,
    tooYoungFor: (answer) => (answer as { young?: number }).young,
    youngBecause: (answer) => (answer as { because?: YoungBecause }).because,
    showsWaiters: (answer) => (answer as { waiting?: boolean }).waiting === true,
  },
  extend: { isExtended: (reply, index) => (reply as string)[index] === '1' },
  release: {
    answer: (reply, index) => (reply as readonly unknown[])[index],
    withoutQueue: {
      script: scripts.release.script,
      pack: (request) => scripts.release.pack([request], '', ''),
      leftWaiters: () => false,
    },
  },
  // Only for a Cluster, which is not simulated.
  wakeWaiters: { script: script('probe'), pack: () => pack({ name: 'probe' }) },
  forceRelease: {
    script: script('forceRelease'),
    pack: (key, ids) => pack({ name: 'forceRelease', key, ids }),
    endedOf: (_ids, answer) => answer as readonly string[],
  },
  holdBack: {
    script: script('holdBack'),
    pack: (waiter, waited) => pack({ name: 'holdBack', waiter, waited }),
  },
  letPass: { script: script('letPass'), pack: aboutWaiter('letPass') },
  leave: { script: script('leave'), pack: aboutWaiter('leave') },
  read: {
    script: script('read'),
    pack: (keys) => pack({ name: 'read', keys }),
    page: (found) => ({ state: found as KeyState, next: '0' }),
    beginning: '0',
  },
  waiting: {
    script: script('waiting'),
    pack: (keys) => pack({ name: 'waiting', keys }),
    waitersOf: (_, answer) => answer as KeyWaiter[][],
  },
  birth: {
    script: script('birth'),
    pack: (marker, identity, wall, former) => {
      if (marker === undefined) return [0];
      return pack({ name: 'birth', marked: true, ...(identity !== undefined && { wall, former }) });
    },
    read: (reply) => reply as ReturnType<NodeScripts['birth']['read']>,
  },
  probe: { script: script('probe') },
  probeKinds: { script: script('probeKinds'), advice: () => undefined },
};
