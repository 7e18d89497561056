import type { Command } from './commands.js';

/** A message from a client. `text` is true for EVAL, false for EVALSHA. */
export type Message =
  | { readonly id: number; readonly command: Command; readonly text: boolean }
  | { readonly id: number; readonly subscribe: string }
  | { readonly id: number; readonly info: true }
  | { readonly id: number; readonly scan: true };

/** A reply, or a message of a channel. */
export type Reply =
  { readonly id: number; readonly reply: unknown } | { readonly channel: string; readonly text: string };

/** A connection as its server sees it. */
export interface Peer {
  /** The channels to which the client has subscribed. */
  readonly channels: Set<string>;
  reply(reply: Reply): void;
  /** The server has ended. */
  serverGone(): void;
}
