import { expect, test } from '@jest/globals';
import { unsafeBecause, weakBecause } from '../../../../lib/stores/redis/health/server-weaknesses.js';
import { type ServerReport, parseInfo } from '../../../../lib/stores/redis/health/server-report.js';

const sound: ServerReport = {
  runId: 'abc',
  mode: 'standalone',
  role: 'master',
  uptime: 5_000,
  evictionPolicy: 'noeviction',
  appendOnly: true,
};

test('`parseInfo` reads the answer to INFO', () => {
  const info = [
    '# Server',
    'redis_mode:cluster',
    'run_id:abc',
    'uptime_in_seconds:5',
    'role:slave',
    'maxmemory_policy:volatile-lru',
    'aof_enabled:1',
  ].join('\r\n');
  expect(parseInfo(info)).toEqual({
    runId: 'abc',
    mode: 'cluster',
    role: 'slave',
    // One second less than in the answer, because the server rounds up.
    uptime: 4_000,
    evictionPolicy: 'volatile-lru',
    appendOnly: true,
  });
});

test.each([
  ['redis_mode:standalone', 'standalone'],
  ['redis_mode:sentinel', 'sentinel'],
  ['server_mode:standalone', 'standalone'],
  ['server_mode:cluster', 'cluster'],
  ['cluster_enabled:1', 'cluster'],
  ['cluster_enabled:0', 'standalone'],
  ['server_mode:another\r\ncluster_enabled:1', 'cluster'],
  ['server_mode:another', undefined],
  ['', undefined],
])('`parseInfo` reads %j as the server mode %s', (info, mode) => {
  expect(parseInfo(info).mode).toBe(mode);
});

test.each([
  ['role:master', 'master'],
  ['role:slave', 'slave'],
  ['role:replica', 'slave'],
  ['', undefined],
])('`parseInfo` reads %j as the server role %s', (info, role) => {
  expect(parseInfo(info).role).toBe(role);
});

test.each([
  ['a sound master', {}, undefined, 'undefined'],
  ['a replica', { role: 'slave' }, undefined, 'it is a replica'],
  ['a node of a Cluster', { mode: 'cluster' }, undefined, 'give an ioredis `Cluster` instead'],
  ['a Sentinel', { mode: 'sentinel' }, undefined, 'it is a Sentinel'],
  ['a server that is listed twice', {}, 'localhost:6379', 'it is the same server as localhost:6379'],
] as const)(
  '`unsafeBecause` decides whether %s can be used for locks (S17)',
  (_what, change, twin, reason) => {
    expect(String(unsafeBecause({ ...sound, ...change }, twin))).toContain(reason);
  },
);

test.each([
  ['nothing on a sound server', {}, 'always', false, []],
  [
    'eviction (S14)',
    { evictionPolicy: 'volatile-ttl' },
    'always',
    true,
    ['maxmemory-policy is volatile-ttl'],
  ],
  [
    'persistence that is off, if the restart guard is off (S13)',
    { appendOnly: false },
    undefined,
    false,
    ['a restart can forget locks'],
  ],
  [
    'appendfsync everysec, if the restart guard is off (S13)',
    {},
    'everysec',
    false,
    ['set appendonly to yes'],
  ],
  [
    'nothing if persistence is off and the restart guard is on (S12)',
    { appendOnly: false },
    undefined,
    true,
    [],
  ],
  ['nothing when appendfsync cannot be read', {}, undefined, false, []],
] as const)('`weakBecause` warns of %s', (_what, change, appendfsync, guarded, warnings) => {
  expect(weakBecause({ ...sound, ...change }, appendfsync, guarded)).toEqual(
    warnings.map((text) => expect.stringContaining(text)),
  );
});
