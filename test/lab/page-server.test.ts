import { beforeAll, expect, test } from '@jest/globals';
import { Lab } from '../../lab/lab.js';
import { servePage } from '../../lab/page-server.js';
import { findStores } from '../../lab/store-choices.js';
import { stopList } from '../sample-app/services.js';

const stops = stopList();
let url: string;

beforeAll(async () => {
  const stores = (await findStores()).map((store) =>
    store.name === 'etcd' ? { ...store, missing: 'There is none: install one' } : store,
  );
  const withEtcd = {
    ...stores.find(({ name }) => name === 'etcd'),
    name: 'etcd-2',
    missing: undefined,
  } as (typeof stores)[number];
  url = await servePage(new Lab(stops, [...stores, withEtcd]), 0, stops);
});

test.each([
  [{ scenario: 8, store: 'postgres' }, /^The scenarios run on Redis/],
  [{ scenario: 0, store: 'oracle' }, /^There is no store "oracle"; there are redis-5, .*etcd/],
  [{ scenario: 0, store: 'etcd' }, /^There is none: install one$/],
  [{ scenario: 0, store: 'etcd-2', ttl: 1_500 }, /^Expected ttl to be .* for etcd, got 1500/],
])('the page server refuses %j, and says why', async (command, message) => {
  const response = await fetch(`${url}/control`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ do: 'start', ...command }),
  });

  expect(response.status).toBe(400);
  expect(await response.json()).toMatchObject({ message: expect.stringMatching(message) });
});
