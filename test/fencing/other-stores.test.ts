import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, test } from '@jest/globals';
import { fencedWrite, type TokenHolder } from '../../lib/fencing/index.js';
import { startRedis } from '../support/redis-server.js';

const root = dirname(dirname(dirname(fileURLToPath(import.meta.url))));

const holder = (fencingToken: number): TokenHolder => ({ keys: ['order:7'], fencingToken });

/** The script that docs/fencing.md gives for Redis. */
function scriptInDocs(): string {
  const page = readFileSync(join(root, 'docs/fencing.md'), 'utf8');
  return /const SET_FENCED = `(.*?)`;/s.exec(page)?.[1] ?? '';
}

test('the documented script for Redis refuses lower tokens, and is exact up to the highest', async () => {
  const redis = (await startRedis()).client();
  const script = scriptInDocs();
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
