import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import type { Driver } from '../../../../lib/stores/redis/connection/driver.js';
import type { GlideClient, Route } from '../../../../lib/stores/redis/glide/client-types.js';
import { GlideClusterDriver } from '../../../../lib/stores/redis/glide/glide-cluster-driver.js';
import { GlideSingleDriver } from '../../../../lib/stores/redis/glide/glide-single-driver.js';

// A client of GLIDE answers as the test says, so that rare errors come at the right moment.

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

const CONNECTION = 'id=3 addr=10.0.0.1:5000 laddr=10.0.0.2:6379 fd=8 name= db=0';

function failure(name: string, message: string): Error {
  return Object.assign(new Error(message), { name });
}

const LOST = failure('ConnectionError', 'connection refused');

/** A client whose requests get the answers of `answer`. */
function clientWith(answer: (commands: readonly string[], route: Route | undefined) => unknown) {
  const state = { isClosed: false };
  const exec: GlideClient['exec'] = async ({ commands }, _, { route }) =>
    commands.map(({ argsArray: { args } }) => {
      const told = answer(args.map(String), route);
      if (told instanceof Error) throw told;
      return told;
    });
  const parts = { config: { addresses: [{ host: '10.0.0.2' }] }, exec, constructor: Object };
  return { state, client: Object.assign(state, parts) as unknown as GlideClient };
}

/** Collects the events of a driver that is in use. */
function eventsOf(driver: Driver): string[] {
  const told: string[] = [];
  for (const event of ['ready', 'close', 'refresh']) driver.on(event, () => told.push(event));
  driver.attach?.();
  return told;
}

test.each([
  failure('RequestError', 'Reached maximum inflight requests'),
  failure('CircuitBreakerError', 'Circuit breaker open'),
  failure('ConfigurationError', 'of a later version'),
])('a driver looks again for a lost connection after the error $name', async (other) => {
  const errors: Error[] = [];
  const { client } = clientWith(() => errors.shift() ?? CONNECTION);
  const driver = new GlideSingleDriver(client);
  const told = eventsOf(driver);
  // The first attempt fails, too.
  errors.push(other);
  await expect(driver.connect()).rejects.toBe(other);
  await jest.advanceTimersByTimeAsync(1_000);
  expect(told).toEqual(['ready']);
  errors.push(LOST, other, other);
  await expect(driver.evalsha('sha', 0)).rejects.toThrow('Connection is closed');
  expect(driver.status).toBe('reconnecting');
  await jest.advanceTimersByTimeAsync(1_000);
  expect(told).toEqual(['ready', 'close', 'ready']);
  driver.disconnect();
});

test('a driver finds a lost connection and a closed client without a command', async () => {
  let answer: unknown = CONNECTION;
  const { client, state } = clientWith(() => answer);
  const driver = new GlideSingleDriver(client);
  const told = eventsOf(driver);
  await driver.connect();
  answer = LOST;
  await jest.advanceTimersByTimeAsync(10_000);
  expect(told).toEqual(['ready', 'close']);
  answer = CONNECTION;
  await jest.advanceTimersByTimeAsync(10_000);
  state.isClosed = true;
  await jest.advanceTimersByTimeAsync(10_000);
  expect(told).toEqual(['ready', 'close', 'ready', 'close']);
  expect(driver.status).toBe('end');
  expect(jest.getTimerCount()).toBe(0);
});

test.each([null, 'ERR unknown subcommand', 'name=x id=3'])(
  'a driver counts no answer of a server whose CLIENT INFO is %j (S12)',
  async (info) => {
    const { client } = clientWith(() => info);
    const driver = new GlideSingleDriver(client);
    const told = eventsOf(driver);
    await expect(driver.evalsha('sha', 0)).rejects.toThrow('give a client of ioredis');
    expect(told).toEqual([]);
    driver.disconnect();
  },
);

/** A Cluster of two masters with a connection for each port, and the ports of the masters that are down. */
function clusterOf() {
  const down = new Set<number>();
  const connections = new Map([
    [1, 'id=1 addr=a'],
    [2, 'id=1 addr=b'],
  ]);
  let ids = ['first', 'second'];
  const { client } = clientWith(([command], route) => {
    const port = typeof route === 'object' && route.type === 'routeByAddress' ? route.port : 1;
    if (down.has(port)) return LOST;
    if (command === 'CLIENT') return connections.get(port);
    return ids.map((id, index) => [index, index, ['10.0.0.2', index + 1, id]]);
  });
  const driver = new GlideClusterDriver(client);
  return { driver, down, connections, rename: (names: string[]) => (ids = names) };
}

test('a Cluster is lost only while none of its masters answers, and is then ready again', async () => {
  const { driver, down } = clusterOf();
  const told = eventsOf(driver);
  await driver.connect();
  down.add(1);
  await jest.advanceTimersByTimeAsync(20_000);
  expect(driver.status).toBe('ready');
  expect(told).not.toContain('close');
  down.add(2);
  // A failed command is reason enough to look at once.
  await expect(driver.evalsha('sha', 1, 'key')).rejects.toThrow('Connection is closed');
  await jest.advanceTimersByTimeAsync(100);
  expect(told.at(-1)).toBe('close');
  expect(driver.lastError).toBe(LOST);
  down.clear();
  await jest.advanceTimersByTimeAsync(1_000);
  expect(told.slice(-2)).toEqual(['close', 'ready']);
  driver.disconnect();
});

test('a master of a Cluster is another server after another connection, or with another id (S14, S17)', async () => {
  const { driver, connections, rename } = clusterOf();
  const told = eventsOf(driver);
  await driver.connect();
  await jest.advanceTimersByTimeAsync(10_000);
  const [one, two] = driver.nodes();
  connections.set(2, 'id=2 addr=b');
  told.length = 0;
  await jest.advanceTimersByTimeAsync(5_000);
  expect(told).toContain('refresh');
  const [same, other] = driver.nodes();
  expect(same).toBe(one);
  expect(other).not.toBe(two);
  rename(['renamed', 'second']);
  await jest.advanceTimersByTimeAsync(5_000);
  expect(driver.nodes()[0]).not.toBe(one);
  expect(driver.nodes()[1]).toBe(other);
  driver.disconnect();
});
