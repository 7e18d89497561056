import 'reflect-metadata';
import { subscribe } from 'node:diagnostics_channel';
import type { INestApplication } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { LOCK_STATE_CHANNEL, type LockStateEvent } from 'nestjs-redlock';
import { AppModule } from '../../sample-app/app.module.js';
import { readEnvironment } from '../../sample-app/config/environment.js';
import type { FromInstance, ToInstance } from './instance-messages.js';
import { InstanceSettings } from './instance-settings.js';
import { Journal } from './journal.js';
import { labDispatching } from './lab-dispatching.js';

// A process that runs instances of the sample, one after the other, as the lab asks. An instance spends most of its
// start on loading code, so the lab starts few processes and uses each for many runs.

let app: INestApplication | undefined;
let settings: InstanceSettings | undefined;

function say(message: FromInstance): void {
  if (process.connected) process.send?.(message);
}

async function open({
  environment,
  strategy,
  work,
  every,
  writes,
  blocks,
}: Extract<ToInstance, { to: 'open' }>): Promise<void> {
  settings = new InstanceSettings(strategy, work, every, writes, blocks);
  app = await NestFactory.create(AppModule.register(readEnvironment(environment), labDispatching(settings)), {
    logger: false,
    abortOnError: false,
  });
  await app.listen(0, '127.0.0.1');
  say({ kind: 'opened', url: await app.getUrl() });
}

async function close(): Promise<void> {
  await app?.close();
  app = undefined;
  say({ kind: 'closed' });
}

async function handle(message: ToInstance): Promise<void> {
  if (message.to === 'open') await open(message);
  else if (message.to === 'close') await close();
  else if (settings) {
    const { to: _to, ...changes } = message;
    Object.assign(settings, changes);
  }
}

process.on('message', (message: ToInstance) => {
  handle(message).catch((error: Error) => say({ kind: 'broken', message: error.message }));
});

// The lab has ended, so nothing would ever close this process.
process.on('disconnect', () => process.kill(process.pid, 'SIGKILL'));

subscribe(LOCK_STATE_CHANNEL, (event) => {
  const { keys, state, error } = event as LockStateEvent;
  if (!keys.includes('batch:task:list') || (state !== 'unconfirmed' && state !== 'lost')) return;
  new Journal().tell({ kind: state, message: error?.message ?? '' });
});

say({ kind: 'booted' });
