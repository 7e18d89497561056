import { expect, test } from '@jest/globals';
import { postgres, type PostgresOptions } from '../../../lib/postgres/index.js';

const url = 'postgres://app:secret@db:5432/app';

test('postgres() accepts a URL or a host', () => {
  expect(() => postgres({ connectionString: url })).not.toThrow();
  expect(() => postgres({ connectionString: 'postgresql://%2Fvar%2Frun/app' })).not.toThrow();
  expect(() => postgres({ host: 'db', port: 5_432, password: () => 'secret', ssl: true })).not.toThrow();
});

test.each([
  [{}, /`connectionString`.*got neither; if .* from an environment variable, set the variable$/],
  [
    { connectionString: undefined },
    /`connectionString`.*got neither; if .* from an environment variable, set the variable$/,
  ],
  [
    { connectionString: 'redis://db' },
    /Expected `connectionString` to be a URL such as postgres:.*a string that begins with 'redis:\/\/'$/,
  ],
  [{ connectionString: 5 }, /Expected `connectionString` to be a URL such as .*got 5/],
  [{ connectionString: url, listenConnectionString: 'db' }, /Expected `listenConnectionString` to be a URL/],
  [{ host: '' }, /Expected `host` to be a string that is not empty/],
  [{ host: 'db', port: 70_000 }, /Expected `port` to be a port, from 1 to 65535, got 70000/],
  [{ host: 'db', password: 5 }, /Expected `password` to be a string or a function, got number/],
  [{ connectionString: url, schema: 'a b' }, /Expected `schema` to be the name of a schema/],
  [{ connectionString: url, schema: 'x'.repeat(64) }, /Expected `schema` to be the name of a schema/],
  [{ connectionString: url, pool: {} }, /Unknown option `pool`.*opens its own connections/],
  [
    { connectionString: url, ttl: 5 },
    /Unknown option `ttl` in `postgres`\. The options are `connectionString`/,
  ],
  [url, /to be an object such as `\{ connectionString: url \}`, got a string/],
] as const)('postgres() throws at once for the options %j', (options, message) => {
  expect(() => postgres(options as unknown as PostgresOptions)).toThrow(message);
});

test('postgres() shows no password in its errors', () => {
  const urls = [
    'redis://app:secret@db',
    'postgres://app:secret@:x',
    'host=db user=app password=secret',
    'postgresql+asyncpg://db/app?user=app&password=secret',
    '\npostgres://app:secret@db/app',
    'postgres://app:secret@db/app\n',
    'postgres://app:sec\nret@db/app',
    'postgres://postgres://app:secret@db/app',
    'postgres://app:12/secret@db/app',
    'postgres://app:12/secret@db',
    'postgres://app:12?secret@db',
    'postgres://app:12#secret@db',
    ['postgres://app:secret@db'],
    { url: 'secret' },
  ];
  const wrong: object[] = [
    ...urls.flatMap((given) => [
      { connectionString: given },
      { connectionString: url, listenConnectionString: given },
    ]),
    ...urls.map((given) => ({ connectionString: url, schema: given })),
    ...urls.map((given) => ({ host: 'db', port: given })),
    { host: ['secret'] },
    { host: 'db', user: { name: 'secret' } },
    ['postgres://app:secret@db'],
  ];
  for (const options of wrong) expect(() => postgres(options)).toThrow(/^((?!secret).)*$/s);
});
