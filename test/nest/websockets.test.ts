import 'reflect-metadata';
import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import {
  type ArgumentsHost,
  type CanActivate,
  Catch,
  type ExecutionContext,
  Injectable,
  type INestApplication,
  type PipeTransform,
  UseFilters,
  UseGuards,
  UsePipes,
  type WsExceptionFilter,
} from '@nestjs/common';
import { WsAdapter } from '@nestjs/platform-ws';
import { MessageBody, SubscribeMessage, WebSocketGateway, WsException } from '@nestjs/websockets';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { concat, defer, ignoreElements, Observable, of } from 'rxjs';
import { WebSocket } from 'ws';
import { currentLock, LockService, WithLock } from '../../lib/index.js';
import { MemoryStore } from '../../lib/stores/memory/memory-store.js';
import { startApp } from '../support/nest-app.js';
import { Overlap } from '../support/overlap.js';
import { type Named, nameOf, permutations, stack } from '../support/stacking.js';
import { until } from '../support/until.js';

const acquire = jest.spyOn(MemoryStore.prototype, 'acquire');
const overlap = new Overlap();
const calls: string[] = [];

@Injectable()
class Deny implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    return context.switchToWs().getData<string>() !== 'denied';
  }
}

class Upper implements PipeTransform {
  transform(value: unknown): unknown {
    if (value === 'bad') throw new WsException('bad');
    return typeof value === 'string' ? value.toUpperCase() : value;
  }
}

@Catch()
class Filter implements WsExceptionFilter {
  catch(error: Error, host: ArgumentsHost): void {
    const event = host.switchToWs().getPattern();
    host
      .switchToWs()
      .getClient<WebSocket>()
      .send(JSON.stringify({ event, data: `filtered ${error.message}` }));
  }
}

const orders = permutations<Named>([
  ['SubscribeMessage', (event) => SubscribeMessage(event)],
  [
    'WithLock',
    () => WithLock((id: string) => `ws:${id}`, { retry: { delay: 1, jitter: 0 } }) as MethodDecorator,
  ],
  ['UseGuards', () => UseGuards(Deny)],
  ['UsePipes', () => UsePipes(Upper)],
  ['UseFilters', () => UseFilters(Filter)],
]);

// All orders share one gateway, because each gateway listens to every socket.
@WebSocketGateway()
class Gateway {}
for (const [index, order] of orders.entries()) {
  const event = `run${index}`;
  const run = async (id: string): Promise<{ event: string; data: string }> => {
    calls.push(id);
    await overlap.work();
    return { event, data: String(currentLock()?.keys) };
  };
  Object.defineProperty(Gateway.prototype, event, { value: run, writable: true, configurable: true });
  MessageBody()(Gateway.prototype, event, 0);
  const decorators = order.map(([, decorator]) => decorator(event));
  stack(Gateway, event, decorators);
}

@WebSocketGateway()
class Streams {
  @SubscribeMessage('stream')
  @WithLock('stream')
  stream(): Observable<{ event: string; data: unknown }> {
    const held = { event: 'stream', data: currentLock('stream')?.isHeld() };
    return concat(of(held), defer(() => until(() => calls.includes('END'))).pipe(ignoreElements()));
  }
}

let app: INestApplication;
let socket: WebSocket;
const received: { readonly event: string; readonly data: unknown }[] = [];

beforeAll(async () => {
  app = await startApp(
    { providers: [Gateway, Streams] },
    { nodes: 'memory' },
    { prepare: (nest) => nest.useWebSocketAdapter(new WsAdapter(nest)) },
  );
  await app.listen(0, '127.0.0.1');
  const { port } = app.getHttpServer().address() as AddressInfo;
  socket = new WebSocket(`ws://127.0.0.1:${port}`);
  socket.on('message', (text: Buffer) => received.push(JSON.parse(text.toString()) as never));
  await once(socket, 'open');
});
afterEach(() => {
  overlap.most = 0;
  calls.length = 0;
  received.length = 0;
  acquire.mockClear();
});
afterAll(() => socket.terminate());

/** Sends messages and waits for an answer to each. */
async function answers(event: string, ...messages: string[]): Promise<unknown[]> {
  received.length = 0;
  for (const data of messages) socket.send(JSON.stringify({ event, data }));
  await until(() => received.length >= messages.length);
  return received.map(({ data }) => data);
}

describe('messages to a gateway, with the decorators in every order', () => {
  test.each(orders.map((order, index) => [nameOf(order), `run${index}`] as const))(
    'with the decorators in the order %s, concurrent messages run one at a time, and messages rejected by a guard or a pipe take no lock',
    async (_name, event) => {
      await expect(answers(event, 'one', 'one')).resolves.toEqual(['ws:ONE', 'ws:ONE']);
      expect(calls).toEqual(['ONE', 'ONE']);
      expect(overlap.most).toBe(1);

      acquire.mockClear();
      calls.length = 0;
      await expect(answers(event, 'denied')).resolves.toEqual(['filtered Forbidden resource']);
      await expect(answers(event, 'bad')).resolves.toEqual(['filtered bad']);
      expect(calls).toEqual([]);
      expect(acquire).not.toHaveBeenCalled();
    },
  );
});

test('a handler that answers with a stream holds its lock until the stream ends', async () => {
  await expect(answers('stream', '')).resolves.toEqual([true]);
  const locks = app.get(LockService);
  await expect(locks.tryAcquire('stream')).resolves.toBeNull();
  calls.push('END');
  await (await locks.acquire('stream', { retry: { timeout: 30_000, delay: 1 } })).release();
});
