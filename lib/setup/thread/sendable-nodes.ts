import { isAnyArrayBuffer, isArrayBufferView } from 'node:util/types';
import type { RedisOptions } from 'ioredis';

/** A node that a thread can open itself. */
export type SendableNode = string | RedisOptions;

/** The nodes for a thread, or the reason why a thread cannot open them. */
export type Sendable =
  | { readonly nodes: readonly SendableNode[]; readonly refusal?: undefined }
  | { readonly nodes?: undefined; readonly refusal: string };

/** @param isOther - `true` for a node that is a client or a store, and not options of ioredis */
export function sendableNodes(nodes: unknown, isOther: (node: object) => boolean): Sendable {
  const all: readonly unknown[] = Array.isArray(nodes) ? nodes : [nodes];
  for (const [index, node] of all.entries()) {
    const name = Array.isArray(nodes) ? `nodes[${index}]` : 'nodes';
    const why = whyNot(name, node, isOther);
    if (why !== undefined) return { refusal: why };
  }
  return { nodes: all as readonly SendableNode[] };
}

const ALTERNATIVE = 'or use `renew: true`, with which a blocked event loop can lose the lock';

function whyNot(name: string, node: unknown, isOther: (node: object) => boolean): string | undefined {
  if (typeof node !== 'object' || node === null) return undefined;
  if (isOther(node)) {
    return (
      `Expected \`nodes\` of URLs or ioredis options with \`renew: 'thread'\`, because the thread needs connections of its ` +
      `own, and \`${name}\` is a client or a store. Give a URL or ioredis options in its place, ${ALTERNATIVE}`
    );
  }
  const part = unsendable(node, name, new Set());
  if (part === undefined) return undefined;
  return (
    `Expected \`nodes\` without functions and objects of classes with \`renew: 'thread'\`, because they cannot be sent to a ` +
    `thread, got \`${part}\`. Leave it out, ${ALTERNATIVE}`
  );
}

/** The name of the first part of the options that a thread cannot receive, without its value, which may be secret. */
function unsendable(value: unknown, name: string, seen: Set<unknown>): string | undefined {
  if (typeof value === 'function' || typeof value === 'symbol') return name;
  if (typeof value !== 'object' || value === null || seen.has(value)) return undefined;
  if (isArrayBufferView(value) || isAnyArrayBuffer(value)) return undefined;
  const prototype: unknown = Object.getPrototypeOf(value);
  if (!Array.isArray(value) && prototype !== Object.prototype && prototype !== null) return name;
  seen.add(value);
  for (const [key, part] of Object.entries(value)) {
    const found = unsendable(part, Array.isArray(value) ? `${name}[${key}]` : `${name}.${key}`, seen);
    if (found !== undefined) return found;
  }
  return undefined;
}
