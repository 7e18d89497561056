import { Duplex } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test } from '@jest/globals';
import { CorkedWrites } from '../../../../lib/stores/redis/connection/corked-writes.js';

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
