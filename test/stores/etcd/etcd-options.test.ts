import { expect, test } from '@jest/globals';
import { etcd, type EtcdOptions } from '../../../lib/etcd/index.js';

const endpoints = 'http://10.0.0.1:2379';
const secure = 'https://etcd.example:2379';

test('etcd() accepts one URL or several, with and without TLS and a user', () => {
  for (const options of [
    { endpoints },
    { endpoints: [endpoints, 'http://[::1]:2379/'] },
    { endpoints: secure, tls: { ca: 'certificate' }, username: 'locks', password: () => 'secret' },
    { endpoints, username: undefined, password: undefined, tls: undefined, prefix: 'my/' },
  ])
    expect(() => etcd(options)).not.toThrow();
});

test.each([
  [undefined, /Expected the options of `etcd` to be an object, got undefined/],
  [endpoints, /to be an object such as `\{ endpoints: \[url\] \}`, got a string/],
  [
    {},
    /Expected `etcd` to have `endpoints`, one or more URLs.*got undefined; if .* from an environment variable, set the variable$/,
  ],
  [{ endpoints: undefined }, /environment variable, set the variable$/],
  [{ endpoints: [] }, /Expected `endpoints` to be one or more URLs .*got \[\]/],
  [{ endpoints: '' }, /Expected each of `endpoints` to be a URL .*got ''/],
  [{ endpoints: 2_379 }, /Expected `endpoints` to be one or more URLs .*got 2379/],
  [{ endpoints: { url: endpoints } }, /Expected `endpoints` to be one or more URLs .*got an object/],
  [{ endpoints: [undefined] }, /Expected each of `endpoints` to be a URL .*got undefined/],
  [{ endpoints: '10.0.0.1:2379' }, /Expected each of `endpoints` .*got a string without a scheme/],
  [
    { endpoints: 'redis://10.0.0.1' },
    /Expected each of `endpoints` .*got a string that begins with 'redis:\/\/'/,
  ],
  [
    { endpoints: `${endpoints}/v3` },
    /Expected each of `endpoints` .* without a path, got .* and continues after the host/,
  ],
  [
    { endpoints: [endpoints, secure] },
    /Expected `endpoints` to be all http:\/\/ or all https:\/\/, got both/,
  ],
  [{ endpoints: 'http://app:secret@db:1' }, /without user and password; give `username` and `password`/],
  [{ endpoints, tls: {} }, /Expected `endpoints` to begin with https:\/\/ when `tls` is given/],
  [{ endpoints: secure, tls: true }, /Expected `tls` to be an object such as \{ ca \}, got true/],
  [
    { endpoints, username: '', password: 'secret' },
    /Expected `username` to be a string that is not empty.*got ''/,
  ],
  [{ endpoints, username: 'locks' }, /Expected `username` and `password` together, got one of them/],
  [{ endpoints, password: 'secret' }, /Expected `username` and `password` together, got one of them/],
  [
    { endpoints, username: 'locks', password: 5 },
    /Expected `password` to be a string or a function, got number/,
  ],
  [
    { endpoints, prefix: 'a\0b' },
    /Expected `prefix` to be a string that is not empty, without NUL characters/,
  ],
  [{ endpoints, hosts: ['a'] }, /Unknown option `hosts` in `etcd`\. Give `endpoints`/],
  [{ endpoints, ttl: 5 }, /Unknown option `ttl` in `etcd`\. The options are `endpoints`/],
] as const)('etcd() throws at once for the options %j', (options, message) => {
  expect(() => etcd(options as unknown as EtcdOptions)).toThrow(message);
});

test('etcd() shows no password in its errors', () => {
  for (const options of [
    { endpoints: 'http://app:secret@db/path' },
    { endpoints: 'redis://app:secret@db' },
    { endpoints, password: 'secret' },
    { endpoints: 'http://app:secret/x@db:2379' },
    { endpoints: 'http://app:12#secret@db:2379' },
    { endpoints: '\nhttp://app:secret@db:2379' },
    { endpoints: 'http://app:secret\n@db:2379' },
    { endpoints: 'http://http://app:secret@db:2379' },
    { endpoints: 'endpoints=db password=secret' },
    { endpoints: [['http://app:secret@db:2379']] as unknown as string[] },
    { endpoints: { url: 'secret' } as unknown as string },
    { endpoints: secure, tls: 'secret' as unknown as object },
    { endpoints, prefix: 'secret\0' },
    { endpoints, username: { secret: 'secret' } as unknown as string, password: 'secret' },
    ['secret'] as unknown as EtcdOptions,
  ])
    expect(() => etcd(options)).toThrow(/^((?!secret).)*$/s);
});
