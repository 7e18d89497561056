import { describe, expect, test } from '@jest/globals';
import { LockService } from '../../lib/index.js';
import { mysql } from '../../lib/mysql/index.js';
import { cleanUpAfterTests } from '../support/leftovers.js';
import { hasMysql, startMysqlServer } from '../support/mysql-server.js';
import { startApp } from '../support/nest-app.js';
import { startBoard } from './board-app.js';
import { BoardStream, hasKey } from './board-stream.js';

(hasMysql() ? describe : describe.skip)('the board on MariaDB', () => {
  test('the board shows a holder and a waiter of another process, and ends the lock on request', async () => {
    const { uri } = await startMysqlServer();
    const nodes = mysql({ uri });
    const board = await startBoard({ public: true, allowForceRelease: true }, { locks: { nodes } });
    const other = await startApp({}, { nodes: mysql({ uri }), owner: 'other' });
    cleanUpAfterTests(async () => void (await Promise.all([board.app.close(), other.close()])));
    const locks = other.get(LockService);
    const lock = await locks.acquire('order:1', { ttl: 60_000 });
    const waiting = locks.acquire('order:1', { ttl: 60_000, retry: { timeout: 60_000 } });
    const stream = await BoardStream.open(board.url);
    const { rows = [] } = await stream.hears(hasKey('order:1'));
    await stream.hears(({ rows: changed = [] }) =>
      changed.some(({ holders, waiters }) => holders[0]?.id === lock.id && waiters[0]?.owner === 'other'),
    );
    const body = JSON.stringify({ epoch: stream.snapshot.epoch, n: rows[0]?.n, ids: [lock.id] });
    const headers = { 'content-type': 'application/json', 'x-redlock-board': '1' };
    const response = await fetch(`${board.url}/release`, { method: 'POST', headers, body });
    await expect(response.json()).resolves.toEqual({ released: 1 });
    const next = await waiting;
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    await stream.hears(({ rows: changed = [] }) => changed.some(({ holders }) => holders[0]?.id === next.id));
    await next.release();
  });
});
