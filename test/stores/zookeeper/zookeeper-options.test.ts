import { describe, expect, test } from '@jest/globals';
import {
  checkZooKeeperOptions,
  ensembleOf,
  type ZooKeeperOptions,
} from '../../../lib/stores/zookeeper/zookeeper.options.js';

const connectionString = 'a:2181';

describe('a connection string', () => {
  test.each([
    ['zoo.example', [['zoo.example', 2181]], ''],
    ['10.0.0.1:2182', [['10.0.0.1', 2182]], ''],
    ['a:1, b:2 ,c:65535/', [['a', 1], ['b', 2], ['c', 65_535]], ''], // prettier-ignore
    ['[::1]:2182,[fe80::1],a/apps/locks', [['::1', 2182], ['fe80::1', 2181], ['a', 2181]], '/apps/locks'], // prettier-ignore
  ])('%s has servers and a path', (text, servers, chroot) => {
    expect(ensembleOf(text)).toEqual({
      servers: servers.map(([host, port]) => ({ host, port })),
      chroot,
    });
  });
});

test('accepts a login, TLS, and options that are undefined', () => {
  for (const options of [
    { connectionString },
    { connectionString, auth: { username: 'locks', password: 'a:b' }, tls: {} },
    { connectionString, auth: { username: 'locks', password: () => 'secret' }, tls: { ca: 'certificate' } },
    { connectionString, auth: { scheme: 'sasl', username: 'locks', password: 'secret' } },
    { connectionString, auth: undefined, tls: undefined },
  ] as ZooKeeperOptions[])
    expect(() => checkZooKeeperOptions(options)).not.toThrow();
});

test.each([
  [undefined, /Expected the options of `zookeeper` to be an object, got undefined/],
  [connectionString, /to be an object such as `\{ connectionString: 'a:2181' \}`, got a string/],
  [{}, /to have `connectionString`, servers .* got undefined; if .* set the variable$/],
  [{ connectionString: 2_181 }, /Expected `connectionString` to be servers .* got 2181/],
  [{ connectionString: '' }, /each server of `connectionString` to be a host with a port.* got ''/],
  [{ connectionString: 'a:2181,' }, /each server of `connectionString`/],
  [{ connectionString: 'a:0' }, /each server of `connectionString`/],
  [{ connectionString: 'a:65536' }, /each server of `connectionString`/],
  [{ connectionString: '::1:2181' }, /each server of `connectionString` .*'\[::1\]:2181'/],
  [{ connectionString: 'zk://a:2181' }, /without a scheme, got a string that begins with 'zk:\/\/'/],
  [{ connectionString: 'locks:secret@a:2181' }, /without a user and a password; give `auth`/],
  [{ connectionString: 'a/locks/' }, /the path in `connectionString` to be like '\/locks'/],
  [{ connectionString: 'a/locks//x' }, /the path in `connectionString`/],
  [{ connectionString: 'a/../x' }, /the path in `connectionString`/],
  [{ connectionString: 'a/x\n' }, /the path in `connectionString`/],
  [{ connectionString, tls: true }, /Expected `tls` to be an object such as \{ ca \}, got true/],
  [
    { connectionString, auth: 'locks:secret' },
    /Expected the options of `auth` to be an object, got a string/,
  ],
  [{ connectionString, auth: { username: 'a:b', password: 'secret' } }, /`auth.username` .* without a colon/],
  [
    { connectionString, auth: { scheme: 'kerberos', username: 'locks', password: 'secret' } },
    /Expected `auth.scheme` to be 'digest' or 'sasl', got/,
  ],
  [{ connectionString, auth: { username: 'locks' } }, /`auth.password` to be a string or a function/],
  [
    { connectionString, auth: { user: 'locks' } },
    /Unknown option `user` in `auth`\. Did you mean `username`/,
  ],
  [{ connectionString, hosts: ['a'] }, /Unknown option `hosts` in `zookeeper`\. Give `connectionString`/],
])('refuses %j, and shows no secret', (options, message) => {
  const check = (): void => checkZooKeeperOptions(options as ZooKeeperOptions);
  expect(check).toThrow(TypeError);
  expect(check).toThrow(message);
  expect(check).not.toThrow(/secret/);
});
