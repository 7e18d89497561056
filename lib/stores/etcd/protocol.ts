// Requests to the JSON gateway of etcd, and its answers. Bytes are base64, and 64-bit numbers are texts.

/**
 * A range of keys: all keys from `from` on that are less than `to`. Without `to`, the range is the single key `from`.
 */
export type KeyRange = readonly [from: string, to?: string];

/** One key with its value. */
export interface Entry {
  readonly key: string;
  readonly value: string;
  /** The revision that created the key; `modified` is the revision that last changed it. */
  readonly created: number;
  readonly modified: number;
  /** The id of the etcd lease with which it expires. */
  readonly lease: string;
}

export interface Header {
  readonly cluster_id?: string;
  readonly revision?: string;
  readonly raft_term?: string;
}

interface RawEntry {
  readonly key: string;
  readonly value?: string;
  readonly create_revision?: string;
  readonly mod_revision?: string;
  readonly lease?: string;
}

interface RawAnswer {
  readonly response_range?: { readonly kvs?: readonly RawEntry[] };
  readonly response_delete_range?: { readonly deleted?: string };
}

export interface TxnReply {
  readonly header: Header;
  readonly succeeded?: boolean;
  readonly responses?: readonly RawAnswer[];
}

export interface WatchReply {
  readonly result?: {
    readonly header?: Header;
    readonly created?: boolean;
    readonly canceled?: boolean;
    readonly events?: readonly { readonly type?: 'PUT' | 'DELETE'; readonly kv: RawEntry }[];
  };
  readonly error?: unknown;
}

/** A transaction: the conditions, and the operations for success and for failure. */
export interface Txn {
  readonly compare?: readonly object[];
  readonly success?: readonly object[];
  readonly failure?: readonly object[];
}

/** Largest number of comparisons, and of operations of a branch, that etcd accepts in one transaction. */
export const MOST_OPERATIONS = 128;

export function base64(text: string): string {
  return Buffer.from(text).toString('base64');
}

export function textOf(bytes: string): string {
  return Buffer.from(bytes, 'base64').toString();
}

/** The condition that none of the keys exists. */
export function absent(range: KeyRange): object {
  return { result: 'EQUAL', target: 'CREATE', create_revision: '0', ...bytesOf(range) };
}

export function present(key: string): object {
  return { result: 'GREATER', target: 'CREATE', create_revision: '0', key: base64(key) };
}

/** The condition that the key was last changed at this revision; 0 for a key that does not exist. */
export function modifiedAt(key: string, revision: number): object {
  return { result: 'EQUAL', target: 'MOD', mod_revision: String(revision), key: base64(key) };
}

/** The condition that the key has this value. */
export function hasValue(key: string, value: string): object {
  return { result: 'EQUAL', target: 'VALUE', value: base64(value), key: base64(key) };
}

export function put(key: string, value: string, lease?: string): object {
  return {
    request_put: { key: base64(key), value: base64(value), ...(lease === undefined ? {} : { lease }) },
  };
}

export function remove(key: string): object {
  return { request_delete_range: { key: base64(key) } };
}

/** The operation that reads a range, in the order of the keys. */
export function get(range: KeyRange, options: { limit?: number; keys_only?: boolean } = {}): object {
  return { request_range: rangeOf(range, options) };
}

export function rangeOf(range: KeyRange, options: { limit?: number; keys_only?: boolean } = {}): object {
  return { ...bytesOf(range), sort_order: 'ASCEND', sort_target: 'KEY', ...options };
}

function bytesOf([from, to]: KeyRange): object {
  return { key: base64(from), ...(to === undefined ? {} : { range_end: base64(to) }) };
}

/** The result of the operation at `index` of the executed branch. */
export function entriesAt({ responses = [] }: TxnReply, index: number): Entry[] {
  return (responses[index]?.response_range?.kvs ?? []).map(entryOf);
}

/** The number of keys that the operation at `index` has deleted. */
export function deletedAt({ responses = [] }: TxnReply, index: number): number {
  return Number(responses[index]?.response_delete_range?.deleted ?? 0);
}

export function entryOf({ key, value = '', create_revision, mod_revision, lease }: RawEntry): Entry {
  return {
    key: textOf(key),
    value: textOf(value),
    created: Number(create_revision ?? 0),
    modified: Number(mod_revision ?? 0),
    lease: lease ?? '0',
  };
}

export function revisionOf({ revision = '0' }: Header): number {
  return Number(revision);
}
