import { expect, test } from '@jest/globals';
import { createHash } from 'node:crypto';
import { SCHEMA_VERSION, schemaSql } from '../../../lib/stores/postgres/schema.js';

test('SCHEMA_VERSION changes with every change of the text of schemaSql', () => {
  const hash = createHash('sha256').update(schemaSql('redlock')).digest('hex').slice(0, 16);
  // A store that finds this version in a database does not run the text. So raise the version with every change of the
  // text, and then enter the new hash.
  expect({ version: SCHEMA_VERSION, hash }).toEqual({ version: 11, hash: 'b3939c921552b293' });
});
