import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from '@jest/globals';
import { fencedWrite, type TokenHolder } from '../../lib/fencing/index.js';
import { startRedis } from '../support/redis-server.js';

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

const holder = (fencingToken: number): TokenHolder => ({ keys: ['order:7'], fencingToken });

/** Returns a script for Redis from docs/fencing.md. */
function scriptInDocs(name: string): string {
  const page = readFileSync(join(root, 'docs/fencing.md'), 'utf8');
  return new RegExp(`const ${name} = \`(.*?)\`;`, 's').exec(page)?.[1] ?? '';
}

test('the Redis script in docs/fencing.md refuses lower tokens, exactly up to 2^53 - 1', async () => {
  const redis = (await startRedis()).client();
  const script = scriptInDocs('SET_FENCED');
  const set = (token: number, value: string) =>
    fencedWrite(holder(token), async () => {
      const highest = await redis.eval(script, 1, 'name', token, value);
      return highest === null ? { accepted: true } : { accepted: false, highest: Number(highest) };
    });
  const most = Number.MAX_SAFE_INTEGER;

  await set(34, 'first');
  await set(34, 'second');
  await expect(set(33, 'old')).rejects.toMatchObject({ token: 33, highest: 34 });
  await expect(redis.hget('name', 'value')).resolves.toBe('second');
  await set(most, 'last');
  await expect(set(most - 1, 'old')).rejects.toMatchObject({ token: most - 1, highest: most });
  await expect(redis.hgetall('name')).resolves.toEqual({ token: String(most), value: 'last' });
});

test('the Redis script for permits in docs/fencing.md compares only tokens of the same slot', async () => {
  const redis = (await startRedis()).client();
  const script = scriptInDocs('ADVANCE_SLOT');
  const push = (slot: number, token: number, item: string) =>
    redis.eval(script, 2, 'tokens', 'queue', slot, token, item);

  await expect(push(0, 40, 'a')).resolves.toBeNull();
  await expect(push(3, 35, 'b')).resolves.toBeNull();
  await expect(push(0, 39, 'late')).resolves.toBe('40');
  await expect(push(3, 35, 'c')).resolves.toBeNull();
  await expect(redis.lrange('queue', 0, -1)).resolves.toEqual(['a', 'b', 'c']);
});
