import type { Subscription } from '../../../core/ports.js';
import type { Listener } from './subscriber.js';

/** The messages of one node to its waiters. */
export interface Messages {
  /** `true` if messages arrive already, so that another listener needs no new connection. */
  readonly subscribed: boolean;
  listen(channel: string, listener: Listener): Subscription;
  close(): void;
}

const NO_SUBSCRIPTION: Subscription = { ready: false, stop: () => undefined };

/** For a client that receives no messages: waiters poll. */
export const NO_MESSAGES: Messages = {
  subscribed: false,
  listen: () => NO_SUBSCRIPTION,
  close: () => undefined,
};
