import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { INestApplication } from '@nestjs/common';
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import {
  FORCE_RELEASE_CHANNEL,
  type ForceReleaseEvent,
  type LockEvent,
  LockService,
  LockUnavailableError,
} from '../../lib/index.js';
import { startApp } from '../support/nest-app.js';
import { type ScriptedNode, scriptedNodes } from '../support/scripted-node.js';

const away = new Error('connection refused');

let nodes: ScriptedNode[];
let app: INestApplication;
let locks: LockService;
let published: ForceReleaseEvent[];
let heard: LockEvent[];
const publish = (event: unknown): void => void published.push(event as ForceReleaseEvent);

beforeEach(async () => {
  [published, heard] = [[], []];
  nodes = scriptedNodes(3);
  const onEvent = (event: LockEvent): void => {
    if (event.type === 'force-released') heard.push(event);
  };
  app = await startApp({}, { nodes, restartGuard: false, onEvent });
  locks = app.get(LockService);
  subscribe(FORCE_RELEASE_CHANNEL, publish);
});
afterEach(async () => {
  unsubscribe(FORCE_RELEASE_CHANNEL, publish);
  await app.close();
});

describe('forceRelease without a quorum', () => {
  test('`forceRelease` rejects without a quorum, and publishes that a holder was ended on the node that answered', async () => {
    const lock = await locks.acquire('k');
    for (const node of nodes.slice(1)) node.fate.forceRelease = away;
    const options = { id: lock.id, actor: 'ann' };
    const error = await locks.forceRelease('k', options).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect(published).toEqual([{ keys: ['k'], ...options, released: true, error }]);
    expect(heard).toEqual([{ type: 'force-released', ...published[0] }]);
  });

  test('`forceRelease` rejects when most nodes cannot be read, and publishes that no holder was ended', async () => {
    await locks.acquire('k');
    for (const node of nodes.slice(1)) node.fate.read = away;
    const error = await locks.forceRelease('k').catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect(published).toEqual([{ keys: ['k'], released: false, error }]);
  });
});

test('`forceRelease` with a quorum publishes no error', async () => {
  await locks.acquire('k');
  nodes[2]!.fate.forceRelease = away;
  await expect(locks.forceRelease('k')).resolves.toBe(true);
  expect(published).toEqual([{ keys: ['k'], released: true }]);
});
