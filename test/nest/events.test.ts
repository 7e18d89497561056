import 'reflect-metadata';
import { afterEach, beforeAll, expect, jest, test } from '@jest/globals';
import { Injectable, type INestApplication, Scope, UseGuards } from '@nestjs/common';
import { EventEmitter2, EventEmitterModule, OnEvent } from '@nestjs/event-emitter';
import { currentLock, LockHeldError, LockService, WithLock } from '../../lib/index.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { startApp } from '../support/nest-app.js';
import { Overlap } from '../support/overlap.js';
import { type Named, nameOf, permutations, stack } from '../support/stacking.js';
import { until } from '../support/until.js';

const acquire = jest.spyOn(MemoryStore.prototype, 'acquire');
const overlap = new Overlap();

const orders = permutations<Named>([
  ['OnEvent', (event) => OnEvent(event)],
  ['OnEvent', (event) => OnEvent(`${event}.too`, { suppressErrors: false })],
  ['WithLock', () => WithLock((id: string) => `event:${id}`, { onBusy: 'skip' }) as MethodDecorator],
  ['UseGuards', () => UseGuards()],
]);

const listeners = orders.map((order, index) => {
  @Injectable()
  class Listener {
    async run(_id: string): Promise<string> {
      await overlap.work();
      return String(currentLock()?.keys);
    }
  }
  const decorators = order.map(([, decorator]) => decorator(`event${index}`));
  stack(Listener, 'run', decorators);
  return Listener;
});

@Injectable({ scope: Scope.REQUEST })
class PerEvent {
  @OnEvent('per-event')
  @WithLock('per-event')
  async run(): Promise<string> {
    return String(currentLock()?.keys);
  }
}

@Injectable()
class Busy {
  @WithLock('busy', { retry: false })
  @OnEvent('busy', { suppressErrors: false })
  async run(): Promise<void> {}
}

let app: INestApplication;
let emitter: EventEmitter2;

beforeAll(async () => {
  app = await startApp({
    imports: [EventEmitterModule.forRoot()],
    providers: [...listeners, PerEvent, Busy],
  });
  emitter = app.get(EventEmitter2);
});
afterEach(() => {
  overlap.most = 0;
  overlap.runs = 0;
  acquire.mockClear();
});

test.each(orders.map((order, index) => [nameOf(order), `event${index}`] as const))(
  'a listener with %s runs under its lock, and two runs with the same key do not overlap',
  async (_name, event) => {
    await expect(emitter.emitAsync(event, 'one')).resolves.toEqual(['event:one']);
    const together = await Promise.all([event, `${event}.too`].map((each) => emitter.emitAsync(each, 'one')));
    expect(together.flat().filter(Boolean)).toEqual(['event:one']);
    expect(overlap).toMatchObject({ runs: 2, most: 1 });
    await Promise.all([emitter.emitAsync(event, 'one'), emitter.emitAsync(event, 'two')]);
    expect(overlap).toMatchObject({ runs: 4, most: 2 });
  },
);

test('a request-scoped event listener runs under its lock', async () => {
  await expect(emitter.emitAsync('per-event')).resolves.toEqual(['per-event']);
});

test('unless errors are suppressed, the emitter gets the error of a listener whose lock is refused', async () => {
  const lock = await app.get(LockService).acquire('busy');
  await expect(emitter.emitAsync('busy')).rejects.toBeInstanceOf(LockHeldError);
  await lock.release();
  await until(() => emitter.emitAsync('busy').then(() => true));
});
