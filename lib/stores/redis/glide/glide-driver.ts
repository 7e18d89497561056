import { AdaptedDriver } from '../connection/adapted-driver.js';
import type { DriverOptions } from '../connection/driver.js';
import type { GlideClient } from './client-types.js';

/**
 * A passed-in client of Valkey GLIDE, with the commands, answers, events and error names of ioredis.
 *
 * A client of GLIDE emits no events: it does not tell when it lost or replaced a connection. So a driver asks.
 */
export abstract class GlideDriver extends AdaptedDriver {
  readonly options: DriverOptions;
  protected state: 'wait' | 'ready' | 'reconnecting' = 'wait';
  protected isDetached = false;

  constructor(protected readonly client: GlideClient) {
    super();
    const { addresses, databaseId } = client.config;
    const [{ host, port = 6379 } = { host: 'localhost' }] = addresses;
    this.options = { host, port, db: databaseId };
  }

  get status(): string {
    return this.client.isClosed ? 'end' : this.state;
  }

  attach(): void {
    this.isDetached = false;
  }

  detach(): void {
    this.isDetached = true;
  }
}
