import type { Contender, Session } from '../contenders/contender.js';
import { Servers } from '../measure/servers.js';

const WARM_UP = 200;

/** An open contender. */
export interface Opened {
  readonly contender: Contender;
  readonly session: Session;
}

/** Starts servers, opens all contenders on them, and closes everything afterwards. */
export async function withSessions<T>(
  nodes: number,
  contenders: readonly Contender[],
  use: (opened: readonly Opened[], servers: Servers) => Promise<T>,
): Promise<T> {
  const servers = await Servers.start(nodes);
  const opened: Opened[] = [];
  try {
    await servers.oldEnough();
    for (const contender of contenders) {
      const session = await contender.open(servers.urls);
      opened.push({ contender, session });
      // The first calls load scripts into the servers and compile code here.
      for (let call = 0; call < WARM_UP; call++) await session.withLock('warm-up', 10_000, async () => {});
    }
    return await use(opened, servers);
  } finally {
    for (const { session } of opened) await session.close();
    await servers.stop();
  }
}
