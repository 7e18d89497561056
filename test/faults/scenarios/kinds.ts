import { setTimeout as sleep } from 'node:timers/promises';
import { type FaultEvent, machineTime } from '../events.js';
import { judge } from '../judge.js';
import { countOf, type Play, type Scenario, some, toTheEnd } from '../scenario.js';
import type { ClientOptions } from '../stage.js';
import type { Want } from '../worker.js';
import { holdToTheEnd, spreadTokens, takeNodesAwayInTurn } from './clients.js';
import { crash } from './crashes.js';
import { shim, stepNodeClock } from './node-clock.js';

/** Locks of each kind on the key `k`, locks of fewer kinds on two other keys, and locks of several keys. */
const MIXED: readonly Want[] = [
  { keys: ['k'] },
  { keys: ['k'], mode: 'shared' },
  { keys: ['k'], mode: 'shared' },
  { keys: ['k'], permits: 3 },
  { keys: ['k'], permits: 3 },
  { keys: ['catalog'] },
  { keys: ['catalog'], mode: 'shared' },
  { keys: ['catalog'], mode: 'shared' },
  { keys: ['stripe'], permits: 3 },
  { keys: ['stripe'], permits: 3 },
  { keys: ['catalog', 'k'], mode: 'shared' },
  // This attempt asks for one of 2 permits of `k`; other attempts ask for one of 3.
  { keys: ['k', 'stripe'], permits: 2 },
  { keys: ['k', 'stripe'] },
];

const TTL = 1_000;

/** Options with a restart guard of a little more than the ttl (S12). */
const CLIENT = {
  wants: MIXED,
  ttl: TTL,
  leastHold: 20,
  hold: 60,
  loops: 2,
  module: { restartGuard: TTL + 100 },
} satisfies ClientOptions;

/** Returns true if there were exclusive holders, two readers at the same time, and three permits at the same time. */
function allKinds(events: readonly FaultEvent[]): boolean {
  const { shared, permits } = judge(events, undefined, machineTime()).mostTogether;
  const alone = new Set(
    events.flatMap((event) =>
      event.event === 'invoke' && event.mode === 'exclusive' ? [`${event.client}#${event.attempt}`] : [],
    ),
  );
  const held = events.filter(
    (event) => event.event === 'return' && alone.has(`${event.client}#${event.attempt}`),
  );
  return shared >= 2 && permits >= 3 && held.length >= 3;
}

/**
 * Makes a scenario with every fault that the promise in docs/safety.md covers. Nodes stop, die or lose their data;
 * connections are cut or slow; clients stop past their ttl, die, or have their clocks set. The short form causes each
 * fault once.
 */
function everything(count: number, seconds: readonly [number, number]): Scenario {
  /** The number of nodes that may fail at once, at least one. */
  const minority = Math.max(1, Math.floor((count - 1) / 2));
  return {
    name: `all kinds: ${count === 1 ? 'one node' : `${count} nodes`}, all faults in turn, data lost, restart guard on (S12, S20-S23)`,
    stage: { nodes: count, proxies: true },
    clients: 5,
    client: CLIENT,
    seconds,
    enough: allKinds,
    async faults(play) {
      for (let turn = 0; turn < HARM.length || !(await play.over()); turn++) {
        await HARM[turn % HARM.length]!(play, minority);
        await sleep(150);
      }
    },
  };
}

const HARM: readonly ((play: Play, minority: number) => Promise<void>)[] = [
  async ({ stage }, minority) => {
    const paused = some(minority, stage.servers);
    for (const server of paused) server.pause();
    await sleep(300);
    for (const server of paused) server.resume();
  },
  async ({ stage }) => {
    const holder = await stage.holder();
    holder.pause();
    await sleep(1.2 * TTL);
    holder.resume();
  },
  async ({ stage }, minority) => {
    for (const proxy of some(minority, stage.proxies)) proxy.cut();
    await sleep(50);
  },
  async ({ stage }, minority) => {
    await crash(some(minority, stage.servers), 100);
  },
  async ({ stage }) => {
    for (const client of stage.clients) if (!client.killed) client.tell('step 3000');
    await sleep(50);
    for (const client of some(2, stage.clients)) if (!client.killed) client.tell('step -6000');
    await sleep(50);
  },
  async ({ stage }, minority) => {
    const late = some(minority, stage.proxies);
    for (const proxy of late) proxy.holdRequests();
    await sleep(300);
    await Promise.all(late.map((proxy) => proxy.heal()));
  },
  async ({ stage }) => {
    const [victim] = some(
      1,
      stage.clients.filter(({ killed }) => !killed),
    );
    await victim!.kill();
    stage.go(await stage.startClients(1, CLIENT));
  },
  async ({ stage }) => {
    await some(1, stage.servers)[0]!.client().flushall();
  },
  async ({ stage }, minority) => {
    const slow = some(minority + 1, stage.proxies);
    for (const proxy of slow) proxy.delayReplies(Math.random() * 150);
    await sleep(300);
    await Promise.all(slow.map((proxy) => proxy.heal()));
  },
];

/** Starts three clients. Each client reaches two of three nodes, and no two clients miss the same node. */
async function cutOffEach(play: Play, options: ClientOptions): Promise<void> {
  const { stage } = play;
  for (let away = 0; away < 3; away++) {
    const proxy = await stage.proxyTo(away);
    const nodes = stage.servers.map(({ url }, node) => (node === away ? proxy.url : url));
    await stage.startClients(1, { ...options, module: { nodes } });
    proxy.blackHole();
  }
  stage.go();
  await toTheEnd(play);
}

/**
 * Starts holders with a long ttl, holders that work for longer than their short ttl, and a client that requests the
 * locks exclusively.
 */
async function holdForLongAndShort(play: Play): Promise<void> {
  const { stage } = play;
  const wants: readonly Want[] = [
    { keys: ['catalog'], mode: 'shared' },
    { keys: ['stripe'], permits: 6 },
  ];
  const together = { wants, loops: 3, renew: false } satisfies ClientOptions;
  await Promise.all([
    stage.startClients(1, { ...together, ttl: 1_500, leastHold: 700, hold: 900 }),
    stage.startClients(1, { ...together, ttl: 300, leastHold: 350, hold: 450 }),
    stage.startClients(1, {
      wants: [{ keys: ['catalog'] }, { keys: ['stripe'] }],
      hold: 10,
      rest: 100,
      // This client does not wait: while it waited, no other client could join the present holders.
      retry: { attempts: 1, delay: 15 },
    }),
  ]);
  stage.go();
  await toTheEnd(play);
}

function cutOff(name: string, wants: readonly Want[], enough: Scenario['enough']): Scenario {
  return {
    name,
    stage: { nodes: 3 },
    clients: 0,
    startsLocked: true,
    seconds: [2, 10],
    faults: (play) => cutOffEach(play, { wants, leastHold: 50, hold: 100, loops: 1 }),
    ...(enough && { enough }),
  };
}

export const kinds: readonly Scenario[] = [
  {
    name: 'all kinds: five nodes, no faults',
    onlyLong: true,
    stage: { nodes: 5 },
    clients: 6,
    client: { ...CLIENT, ttl: 2_000, module: {} },
    seconds: [2, 20],
    enough: allKinds,
  },
  { ...everything(1, [1, 30]), onlyLong: true },
  everything(3, [1, 30]),
  { ...everything(5, [1, 90]), onlyLong: true },
  cutOff(
    'permits, each of three clients misses a different node (S20)',
    [{ keys: ['k'], permits: 2 }],
    (events) => countOf(events, 'return') > 10,
  ),
  cutOff(
    'readers and writers, each of three clients misses a different node (S21)',
    [{ keys: ['k'] }, { keys: ['k'], mode: 'shared' }],
    (events) => countOf(events, 'return') > 10,
  ),
  {
    name: 'shared locks and permits with a long ttl beside a short ttl (S23)',
    essential: true,
    stage: { nodes: 3 },
    clients: 0,
    startsLocked: true,
    seconds: [2, 10],
    faults: holdForLongAndShort,
    enough: (events) => countOf(events, 'lost') > 3 && countOf(events, 'return') > 10,
  },
  {
    name: 'permits, nodes with different token counters: tokens of a slot still increase',
    onlyLong: true,
    stage: { nodes: 3 },
    clients: 2,
    client: { wants: [{ keys: ['k'], permits: 2 }], loops: 2 },
    seconds: [2, 10],
    before: spreadTokens,
    faults: takeNodesAwayInTurn,
  },
  {
    name: 'slow replies to a reader, fast replies to a writer (S4)',
    onlyLong: true,
    stage: { nodes: 3, proxies: true },
    clients: 0,
    startsLocked: true,
    seconds: [2, 10],
    faults: (play) => holdToTheEnd(play, [{ keys: ['k'], mode: 'shared' }]),
  },
  {
    name: 'all kinds: the wall clock of one of five nodes steps by up to two minutes, both ways',
    onlyLong: true,
    stage: { nodes: 5, ...(typeof shim === 'string' ? {} : { firstNodeEnv: shim.env }) },
    ...(typeof shim === 'string' ? { skippedBecause: shim } : {}),
    clients: 5,
    client: { ...CLIENT, module: {} },
    seconds: [2, 10],
    // The promise in docs/safety.md excludes these steps of the clock, because a quorum may depend on this node. Tokens
    // still increase.
    overlapsBecause: 'the node expires keys early',
    enough: allKinds,
    faults: stepNodeClock,
  },
];
