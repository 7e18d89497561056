import { Duplex } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from '@jest/globals';
import { CorkedWrites } from '../../lib/ioredis/corked-writes.js';
import { IoredisNode } from '../../lib/ioredis/ioredis-node.js';
import { NO_RETRY } from '../../lib/redlock/lock-options.js';
import { newFleet, redlockOver } from '../support/core.js';
import { startRedis } from '../support/redis-server.js';

/** Remembers what reaches the other side, one entry for each write of the system. */
function socket(): { readonly stream: Duplex; readonly writes: string[] } {
  const writes: string[] = [];
  const stream = new Duplex({
    read: () => undefined,
    decodeStrings: false,
    write(chunk: string, _encoding, done) {
      writes.push(chunk);
      done();
    },
    writev(chunks, done) {
      writes.push(chunks.map(({ chunk }) => chunk as string).join(''));
      done();
    },
  });
  return { stream, writes };
}

test('what is sent in one turn is written at its end, all at once', async () => {
  const { stream, writes } = socket();
  const corked = new CorkedWrites();
  const send = (text: string): void => {
    corked.begin(stream);
    stream.write(text);
  };
  send('a');
  await Promise.resolve();
  send('b');
  expect(writes).toEqual([]);
  await turn();
  expect(writes).toEqual(['ab']);
  send('c');
  await turn();
  expect(writes).toEqual(['ab', 'c']);
});

test('when the connection is replaced within a turn, neither keeps what was sent', async () => {
  const [old, fresh] = [socket(), socket()];
  const corked = new CorkedWrites();
  for (const [{ stream }, text] of [
    [old, 'a'],
    [fresh, 'b'],
    [old, 'c'],
  ] as const) {
    corked.begin(stream);
    stream.write(text);
  }
  expect([old.writes, fresh.writes]).toEqual([[], []]);
  await turn();
  expect([old.writes, fresh.writes]).toEqual([['ac'], ['b']]);
  corked.begin(fresh.stream);
  fresh.stream.write('d');
  await turn();
  expect(fresh.writes).toEqual(['b', 'd']);
});

test('locks that are asked for together are one write, on a client of the user, too', async () => {
  const server = await startRedis();
  const client = server.client();
  const redlock = redlockOver([new IoredisNode(client, false, newFleet())]);
  const acquire = async (key: string): Promise<void> => {
    const lock = await redlock.acquire([key], { ttl: 10_000, retry: NO_RETRY, renew: false, signals: [] });
    await lock.release();
  };
  await client.ping();
  // The first one brings the scripts to the server.
  await acquire('first');
  const writes: number[] = [];
  const writev = client.stream['_writev'];
  client.stream['_writev'] = (chunks, done) => {
    writes.push(chunks.length);
    writev?.call(client.stream, chunks, done);
  };
  await Promise.all(['a', 'b', 'c'].map(acquire));
  expect(writes[0]).toBe(3);
  await server.stop();
});
