import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { fileOf } from '../../../lib/setup/thread/nodes-file.js';
import { openOwnNodes } from '../../../lib/setup/thread/own-nodes.js';
import { newFleet } from '../../support/core.js';

let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'own-nodes-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

async function open(code: string, count = 1): Promise<unknown> {
  const path = join(folder, `${Math.random()}.mjs`);
  await writeFile(path, code);
  return await openOwnNodes({ file: pathToFileURL(path).href, count }, newFleet());
}

test('`threadNodes` is a `file:` URL or an absolute path', () => {
  const path = join(tmpdir(), 'lock nodes.js');
  const { href } = pathToFileURL(path);
  for (const given of [path, href, new URL(href)]) expect(fileOf(given)).toBe(href);
  for (const given of ['./lock-nodes.js', 'lock-nodes', 'https://a/b.js', new URL('https://a/b.js'), 5])
    expect(() => fileOf(given)).toThrow('Expected `threadNodes` to be a `file:` URL');
});

test('the stores of the thread are those of the function `nodes`', async () => {
  const methods = '{ acquire() {}, extend() {}, release() {}, connect() {}, close() {} }';
  const store = `{ ...${methods}, name: "own", modes: ["exclusive"], available: true }`;
  const stores = await open(`export const nodes = async () => [{ openStore: () => (${store}) }]`);
  expect(stores).toEqual([expect.objectContaining({ name: 'own' })]);
});

test.each([
  ['export default () => "redis://a"', 'to export a function `nodes`, got undefined'],
  // With fewer nodes, a minority could confirm a renewal.
  ['export const nodes = () => ["redis://a"]', 'to return the nodes of the module (3), got 1'],
  ['export const nodes = () => ["memory", "memory", "memory"]', "(3), got 'memory'"],
  ['export const nodes = () => ["redis://a", "redis://b", "mysql://c"]', 'Expected `nodes` to be'],
])('a file with the code %j is refused', async (code, message) => {
  await expect(open(code, 3)).rejects.toThrow(message);
});
