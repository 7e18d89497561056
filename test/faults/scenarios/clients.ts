import { setTimeout as sleep } from 'node:timers/promises';
import { until } from '../../support/until.js';
import { tokenAt } from '../../../lib/core/fencing-token.js';
import { countOf, type Play, repeat, type Scenario, some } from '../scenario.js';
import { recordOf } from '../../support/core.js';
import type { Want } from '../worker.js';

const EXCLUSIVE: readonly Want[] = [{ keys: ['k'] }];

export const clients: readonly Scenario[] = [
  {
    name: 'the wall clock of clients steps by 3 s, both ways (S11)',
    onlyLong: true,
    stage: { nodes: 3 },
    clients: 4,
    client: { hold: 100 },
    seconds: [2, 10],
    faults: (play) =>
      repeat(play, 50, (turn) => {
        for (const client of some(1, play.stage.clients)) client.tell(`step ${turn % 2 ? 3_000 : -3_000}`);
        return Promise.resolve();
      }),
  },
  {
    name: 'clients shut down while they hold the lock or wait for it',
    onlyLong: true,
    stage: { nodes: 3 },
    clients: 8,
    // A wait may last far longer than a shutdown, so the test fails if a shutdown does not end a wait.
    client: { leastHold: 30, hold: 60, retry: { timeout: 60_000 } },
    seconds: [1, 6],
    async faults({ stage }) {
      for (let turn = 0; turn < 3; turn++) {
        const holder = await stage.holder();
        const waiting = stage.clients.find((client) => !client.quitting && client !== holder)!;
        await Promise.all([holder.quit(), waiting.quit()]);
        await sleep(100);
      }
    },
  },
  {
    name: 'several callers in each process wait at the same time (S5)',
    onlyLong: true,
    stage: { nodes: 3 },
    clients: 2,
    client: { loops: 3 },
    seconds: [2, 10],
  },
  {
    name: 'nodes with different token counters: tokens still increase',
    essential: true,
    stage: { nodes: 3 },
    clients: 2,
    seconds: [2, 10],
    before: spreadTokens,
    faults: takeNodesAwayInTurn,
  },
  {
    name: 'slow replies to one client, fast replies to the other (S4)',
    essential: true,
    stage: { nodes: 3, proxies: true },
    clients: 0,
    startsLocked: true,
    seconds: [2, 10],
    faults: (play) => holdToTheEnd(play),
  },
];

/**
 * Gives each node a last token of its own, a day ahead of the clock, so that the clock does not make the tokens equal.
 */
export async function spreadTokens({ servers }: Play['stage']): Promise<void> {
  const ahead = tokenAt(Date.now() + 86_400_000);
  await Promise.all(
    servers.map((server, index) => {
      const record = recordOf('nobody', undefined, ahead + (2 - index) * 1_000_000);
      return server.client().set('lock:{k}', record.replace('H', 'F'), 'PX', 30_000);
    }),
  );
}

/** Pauses the nodes in turn. Each quorum lacks a different node, and must know the token of the previous quorum. */
export async function takeNodesAwayInTurn(play: Play): Promise<void> {
  await repeat(play, 50, async (turn) => {
    const away = play.stage.servers[(turn + 2) % 3]!;
    away.pause();
    await sleep(400);
    away.resume();
  });
}

/**
 * Delays the replies to one client, which holds to the end of its validity. The other client gets its replies at once.
 */
export async function holdToTheEnd({ stage, over }: Play, slowWants = EXCLUSIVE): Promise<void> {
  for (const proxy of stage.proxies) proxy.delayReplies(80);
  const nodes = stage.servers.map(({ url }) => url);
  const [[slow]] = await Promise.all([
    stage.startClients(1, {
      wants: slowWants,
      ttl: 1_000,
      renew: false,
      leastHold: 1_000,
      hold: 1_000,
      // This limit is far above the delay, because a reply takes longer on a busy machine.
      module: { nodeTimeout: 200 },
    }),
    stage.startClients(1, {
      ttl: 1_000,
      hold: 20,
      rest: 200,
      retry: { delay: 2, jitter: 2 },
      module: { nodes },
    }),
  ]);
  stage.go();
  const turns = async (): Promise<number> => countOf(await slow!.events(), 'release');
  await until(async () => (await over()) && (await turns()) >= 3, 200_000);
  for (const proxy of stage.proxies) proxy.delayReplies(0);
}
