import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from '@jest/globals';
import { bundled } from '../../support/bundle.js';

test('the store answers pending and later requests after a listener throws', async () => {
  const program = await bundled('test/stores/postgres/throwing-listener.ts');
  // A request that is never answered does not keep the process alive: the process then prints nothing.
  const { stdout } = await promisify(execFile)(process.execPath, [program]);
  expect(JSON.parse(stdout)).toEqual({ during: true, later: true, errors: ['broken'] });
});
