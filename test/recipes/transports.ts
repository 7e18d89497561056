import { Controller, Injectable, Module, Param, ParseIntPipe, Post, UseFilters } from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import { EventPattern, MessagePattern, Payload, type RedisOptions, Transport } from '@nestjs/microservices';
import type { NestFastifyApplication } from '@nestjs/platform-fastify';
import { WsAdapter } from '@nestjs/platform-ws';
import { MessageBody, SubscribeMessage, WebSocketGateway } from '@nestjs/websockets';
import { LockExceptionFilter, WithLock } from 'nestjs-redlock';

@Injectable()
export class Orders {
  async settle(id: number): Promise<string> {
    return `order ${id} is settled`;
  }
}

@Controller()
export class OrdersController {
  constructor(private readonly orders: Orders) {}

  @Post('orders/:id/settle')
  @WithLock((id: number) => `order:${id}`)
  async settle(@Param('id', ParseIntPipe) id: number): Promise<string> {
    return this.orders.settle(id);
  }

  @MessagePattern('settle')
  @WithLock((id: number) => `order:${id}`)
  async onMessage(@Payload() id: number): Promise<string> {
    return this.orders.settle(id);
  }

  // Redis sends an event to every instance. The first instance keeps the key until the event has reached the others.
  @EventPattern('paid')
  @WithLock((id: number) => `paid:${id}`, { onBusy: 'skip', minHold: 30_000 })
  async onPaid(@Payload() id: number): Promise<void> {
    await this.orders.settle(id);
  }
}

// A gateway needs its own filter, because filters of the application do not apply to it.
@UseFilters(LockExceptionFilter)
@WebSocketGateway()
export class OrdersGateway {
  constructor(private readonly orders: Orders) {}

  @SubscribeMessage('settle')
  @WithLock((id: number) => `order:${id}`)
  async settle(@MessageBody() id: number): Promise<{ event: string; data: string }> {
    return { event: 'settled', data: await this.orders.settle(id) };
  }
}

@Module({
  controllers: [OrdersController],
  providers: [Orders, OrdersGateway, { provide: APP_FILTER, useClass: LockExceptionFilter }],
})
export class OrdersModule {}

/** Call this before `app.listen`. */
export async function connect(
  app: NestFastifyApplication,
  tcpPort: number,
  redis: RedisOptions['options'],
): Promise<void> {
  app.useWebSocketAdapter(new WsAdapter(app));
  // Without `inheritAppConfig` the filter answers only HTTP.
  const inherit = { inheritAppConfig: true };
  app.connectMicroservice({ transport: Transport.TCP, options: { port: tcpPort } }, inherit);
  app.connectMicroservice({ transport: Transport.REDIS, options: redis }, inherit);
  await app.startAllMicroservices();
}
