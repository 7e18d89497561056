import { beforeAll, describe, expect, test } from '@jest/globals';
import { freePort, PORT_SHARES, portsOf } from './free-port.js';

/** Offset of the port on which a server of a Redis Cluster listens for the other servers. */
const CLUSTER_BUS = 10_000;

/** First port that Linux uses for outgoing connections. */
const FIRST_OUTGOING = 32_768;

describe('the ports of the Jest workers', () => {
  let workers: number[];

  beforeAll(async () => {
    const { default: config } = (await import(new URL('../../jest.config.mjs', import.meta.url).href)) as {
      default: { maxWorkers: number };
    };
    workers = Array.from({ length: config.maxWorkers + 1 }, (_, worker) => worker);
  });

  test('the ports of Jest workers overlap neither with each other nor with the ports of a process without Jest', () => {
    expect(workers.length).toBeLessThanOrEqual(PORT_SHARES);
    const ranges = workers.map(portsOf).toSorted(([a], [b]) => a - b);
    for (const [index, [first]] of ranges.slice(1).entries())
      expect(first).toBeGreaterThanOrEqual(ranges[index]![1]);
  });

  test('no Jest worker gets a port that outgoing connections or the bus of a Redis Cluster may use', () => {
    const ports = workers.map(portsOf);
    const [first, end] = [Math.min(...ports.flat()), Math.max(...ports.flat())];
    expect(end + CLUSTER_BUS).toBeLessThan(FIRST_OUTGOING);
    expect(first + CLUSTER_BUS).toBeGreaterThanOrEqual(end);
  });
});

test('`freePort` returns only ports of its Jest worker, and never the same port twice', async () => {
  const ports = await Promise.all(Array.from({ length: 20 }, () => freePort()));
  const [first, end] = portsOf(Number(process.env['JEST_WORKER_ID']));
  expect(new Set(ports).size).toBe(ports.length);
  for (const port of ports) expect(port >= first && port < end).toBe(true);
});
