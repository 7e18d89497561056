import { Client } from 'pg';
import type { StopList } from './stop-list.js';

/**
 * Makes an empty schema in the database, and drops the schema at the end. So a run starts without tasks, and leaves the
 * tables of a given database alone.
 *
 * @returns a URL whose connections use this schema
 */
export async function createScratchSchema(
  databaseUrl: string,
  name: string,
  stops: StopList,
): Promise<string> {
  await execute(databaseUrl, `create schema "${name}"`);
  await stops.add(() => execute(databaseUrl, `drop schema "${name}" cascade`));
  const url = new URL(databaseUrl);
  url.searchParams.set('options', `-c search_path=${name}`);
  return url.href;
}

async function execute(url: string, statement: string): Promise<void> {
  const client = new Client({ connectionString: url, connectionTimeoutMillis: 5_000 });
  client.on('error', () => undefined);
  try {
    await client.connect();
    await client.query(statement);
  } finally {
    await client.end().catch(() => undefined);
  }
}
