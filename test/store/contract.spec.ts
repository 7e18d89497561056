// The spec of docs/own-store.md. The first import names the test runner. A test checks that the page shows this code.
import { after as afterAll, before as beforeAll, describe, test } from 'node:test';
import { storeContract } from 'nestjs-redlock/store';
import { mapTable } from './map-table.js';
import { TableStore } from './table-store.js';

const store = new TableStore(mapTable());
beforeAll(() => store.connect());
afterAll(() => store.close());
storeContract({ describe, test }, store.name, { modes: ['exclusive'], store: () => store });
