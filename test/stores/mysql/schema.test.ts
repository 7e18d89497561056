import { expect, test } from '@jest/globals';
import { createHash } from 'node:crypto';
import { SCHEMA_VERSION, SchemaNames, schemaStatements } from '../../../lib/stores/mysql/schema.js';

test('SCHEMA_VERSION changes with every change of the procedures', () => {
  const text = schemaStatements(new SchemaNames()).join('\n');
  const hash = createHash('sha256').update(text).digest('hex').slice(0, 16);
  // A store that finds the procedures of this version does not create them again. So raise the version with every change
  // of the text, and then enter the new hash. Such a change must also reach databases that have the tables: see `SCHEMA_VERSION`.
  expect({ version: SCHEMA_VERSION, hash }).toEqual({ version: 6, hash: 'b9bda25e1466a236' });
});
