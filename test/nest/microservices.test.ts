import 'reflect-metadata';
import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import {
  type ArgumentsHost,
  type CanActivate,
  Catch,
  Controller,
  type ExceptionFilter,
  type ExecutionContext,
  Injectable,
  type INestApplication,
  type PipeTransform,
  Scope,
  UseFilters,
  UseGuards,
  UsePipes,
} from '@nestjs/common';
import {
  type ClientProxy,
  ClientProxyFactory,
  EventPattern,
  MessagePattern,
  Payload,
  RpcException,
  Transport,
} from '@nestjs/microservices';
import { concat, defer, firstValueFrom, lastValueFrom, map, Observable, of, throwError, toArray } from 'rxjs';
import { currentLock, LockService, WithLock } from '../../lib/index.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { freePort } from '../support/free-port.js';
import { startApp } from '../support/nest-app.js';
import { Overlap } from '../support/overlap.js';
import { type Named, nameOf, permutations, stack } from '../support/stacking.js';
import { until } from '../support/until.js';

const acquire = jest.spyOn(MemoryStore.prototype, 'acquire');
const overlap = new Overlap();
const calls: string[] = [];
const refused: string[] = [];

@Injectable()
class Deny implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    return context.switchToRpc().getData<string>() !== 'denied';
  }
}

class Upper implements PipeTransform {
  transform(value: unknown): unknown {
    if (value === 'bad') throw new RpcException('bad');
    return typeof value === 'string' ? value.toUpperCase() : value;
  }
}

@Catch()
class Filter implements ExceptionFilter {
  catch(error: Error, host: ArgumentsHost): Observable<never> {
    refused.push(host.switchToRpc().getData());
    return throwError(() => `filtered ${error.message}`);
  }
}

async function work(id: string): Promise<string> {
  calls.push(id);
  await overlap.work();
  return String(currentLock()?.keys);
}

const others: Named[] = [
  [
    'WithLock',
    () => WithLock((id: string) => `rpc:${id}`, { retry: { delay: 1, jitter: 0 } }) as MethodDecorator,
  ],
  ['UseGuards', () => UseGuards(Deny)],
  ['UsePipes', () => UsePipes(Upper)],
  ['UseFilters', () => UseFilters(Filter)],
];
const messages = permutations<Named>([['MessagePattern', (pattern) => MessagePattern(pattern)], ...others]);
const events = permutations<Named>([
  ['EventPattern', (pattern) => EventPattern(pattern) as MethodDecorator],
  ...others,
]);

const controllers = [...messages, ...events].map((order, index) => {
  @Controller()
  class Handlers {
    async run(@Payload() id: string): Promise<string> {
      return work(id);
    }
  }
  const decorators = order.map(([, decorator]) => decorator(`run${index}`));
  stack(Handlers, 'run', decorators);
  return Handlers;
});

@Controller()
class Streams {
  @MessagePattern('stream')
  @WithLock('stream')
  stream(): Observable<boolean> {
    const held = (): boolean => currentLock('stream')?.isHeld() ?? false;
    const end = defer(() => until(() => calls.includes('END')));
    return concat(
      defer(() => of(held())),
      end.pipe(map(held)),
    );
  }
}

@Controller({ scope: Scope.REQUEST })
class PerMessage {
  @MessagePattern('per-message')
  @WithLock('per-message')
  async run(): Promise<string> {
    return String(currentLock()?.keys);
  }
}

let app: INestApplication;
let client: ClientProxy;

beforeAll(async () => {
  const options = { host: '127.0.0.1', port: await freePort() };
  app = await startApp({ controllers: [...controllers, Streams, PerMessage] });
  app.connectMicroservice({ transport: Transport.TCP, options });
  await app.startAllMicroservices();
  client = ClientProxyFactory.create({ transport: Transport.TCP, options });
  await client.connect();
});
afterEach(() => {
  overlap.most = 0;
  calls.length = 0;
  refused.length = 0;
  acquire.mockClear();
});
afterAll(() => client.close());

const send = (pattern: string, data: string): Promise<unknown> => firstValueFrom(client.send(pattern, data));

describe('messages, with the decorators in every order', () => {
  test.each(messages.map((order, index) => [nameOf(order), index] as const))(
    'with the decorators in the order %s, concurrent messages run one at a time, and messages rejected by a guard or a pipe take no lock',
    async (_name, index) => {
      const pattern = `run${index}`;
      await expect(Promise.all([send(pattern, 'one'), send(pattern, 'one')])).resolves.toEqual([
        'rpc:ONE',
        'rpc:ONE',
      ]);
      expect(calls).toEqual(['ONE', 'ONE']);
      expect(overlap.most).toBe(1);

      acquire.mockClear();
      calls.length = 0;
      await expect(send(pattern, 'denied')).rejects.toBe('filtered Forbidden resource');
      await expect(send(pattern, 'bad')).rejects.toBe('filtered bad');
      expect(calls).toEqual([]);
      expect(acquire).not.toHaveBeenCalled();
    },
  );
});

describe('events, with the decorators in every order', () => {
  test.each(events.map((order, index) => [nameOf(order), messages.length + index] as const))(
    'with the decorators in the order %s, concurrent events run one at a time, and events rejected by a guard or a pipe do not run the handler',
    async (_name, index) => {
      const emit = (data: string): Promise<unknown> =>
        lastValueFrom(client.emit(`run${index}`, data), { defaultValue: undefined });
      await Promise.all(['denied', 'bad', 'one', 'one'].map(emit));
      await until(() => calls.length === 2 && overlap.running === 0 && refused.length === 2);
      expect(calls).toEqual(['ONE', 'ONE']);
      expect(refused).toEqual(['denied', 'bad']);
      expect(overlap.most).toBe(1);
    },
  );
});

test('a handler that answers with a stream holds its lock until the stream ends', async () => {
  const answers = lastValueFrom(client.send('stream', '').pipe(toArray()));
  const locks = app.get(LockService);
  await until(async () => {
    const lock = await locks.tryAcquire('stream');
    await lock?.release();
    return lock === null;
  });
  calls.push('END');
  await expect(answers).resolves.toEqual([true, true]);
  await (await locks.acquire('stream', { retry: { timeout: 30_000, delay: 1 } })).release();
});

test('a request-scoped controller runs under its lock', async () => {
  await expect(send('per-message', '')).resolves.toBe('per-message');
});
