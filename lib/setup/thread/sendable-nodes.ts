import { isAnyArrayBuffer, isArrayBufferView } from 'node:util/types';
import type { RedisOptions } from 'ioredis';
import type { MadeStore, StoreFactory } from '../../core/store-factory.js';
import { isClient } from '../../stores/redis/driver-for.js';
import { isFactory, isStore } from '../check-node.js';

/** A node that a thread can open itself. */
export type SendableNode = { readonly redis: string | RedisOptions } | MadeStore;

/** The nodes for a thread, or the reason why a thread cannot open them. */
export type Sendable =
  | { readonly nodes: readonly SendableNode[]; readonly refusal?: undefined }
  | { readonly nodes?: undefined; readonly refusal: string };

/** @param nodes - the checked option of the module, except `'memory'` */
export function sendableNodes(nodes: unknown): Sendable {
  const isList = Array.isArray(nodes);
  const sendable: SendableNode[] = [];
  for (const [index, node] of (isList ? nodes : [nodes]).entries()) {
    const name = isList ? `nodes[${index}]` : 'nodes';
    const made = isFactory(node) ? node.made : undefined;
    const refusal = made
      ? whyNotSent(made.options, made.by)
      : isOfApplication(node)
        ? whyNotOpened(name)
        : whyNotSent(node, name);
    if (refusal !== undefined) return { refusal };
    sendable.push(made ?? { redis: node as string | RedisOptions });
  }
  return { nodes: sendable };
}

/** `true` for an object that only the main thread can use: a client, or a store of the application. */
function isOfApplication(node: unknown): node is StoreFactory {
  return isFactory(node) || isStore(node) || (typeof node === 'object' && node !== null && isClient(node));
}

const ALTERNATIVE =
  'or make the nodes of the thread in a file of your own (`threadNodes`), or use `renew: true`, with which a blocked event ' +
  'loop can lose the lock';

function whyNotOpened(name: string): string {
  return (
    `Expected \`nodes\` that a thread can open itself with \`renew: 'thread'\`, because the thread needs connections of its ` +
    `own, and \`${name}\` is a client, or a store that is not known to the thread. Give a URL of Redis, ioredis options, ` +
    `\`postgres(...)\`, \`mysql(...)\`, \`etcd(...)\` or \`zookeeper(...)\` in its place, ${ALTERNATIVE}`
  );
}

function whyNotSent(options: unknown, name: string): string | undefined {
  const part = unsendable(options, name, new Set());
  if (part === undefined) return undefined;
  const remedy = part === name ? 'Give a plain object, such as `{ ...options }`' : 'Leave it out';
  return (
    `Expected \`nodes\` without functions and objects of classes with \`renew: 'thread'\`, because they cannot be sent to a ` +
    `thread, got \`${part}\`. ${remedy}, ${ALTERNATIVE}`
  );
}

/** The name of the first part of the options that a thread cannot receive, without its value, which may be secret. */
function unsendable(value: unknown, name: string, seen: Set<unknown>): string | undefined {
  if (typeof value === 'function' || typeof value === 'symbol') return name;
  if (typeof value !== 'object' || value === null || seen.has(value)) return undefined;
  if (isArrayBufferView(value) || isAnyArrayBuffer(value)) return undefined;
  const prototype: unknown = Object.getPrototypeOf(value);
  if (!Array.isArray(value) && !isOfPlainObjects(prototype)) return name;
  seen.add(value);
  for (const [key, part] of Object.entries(value)) {
    const found = unsendable(part, Array.isArray(value) ? `${name}[${key}]` : `${name}.${key}`, seen);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** `true` for `Object.prototype`, also that of another realm, such as a test of Jest. */
function isOfPlainObjects(prototype: unknown): boolean {
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}
