import { type JuteReader, JuteWriter } from './jute.js';
import { refused } from './zookeeper-error.js';

/** The numbers of the requests in ZooKeeper's protocol. */
const Op = {
  create: 1,
  remove: 2,
  exists: 3,
  getData: 4,
  setData: 5,
  getChildren: 8,
  sync: 9,
  check: 13,
  multi: 14,
  sasl: 102,
  closeSession: -11,
} as const;

/** The code of the operations of a transaction that follow the refused operation. */
const AFTER_THE_REFUSAL = -2;

/** The number of an operation that failed, in the answer to a transaction. */
const FAILED = -1;

const EPHEMERAL = 1;

/** One request, without its number. */
export interface Request<Reply> {
  readonly op: number;
  /** Writes the parameters. */
  readonly write: (to: JuteWriter, chroot: string) => void;
  /**
   * Reads the answer.
   *
   * @throws ZooKeeperError when the answer is a refusal
   */
  readonly read: (from: JuteReader) => Reply;
}

/** A request that changes something, which can be part of a transaction. */
export interface Change<Reply = NodeStat | undefined> extends Request<Reply> {
  readonly isChange: true;
}

/** The state of a node that ZooKeeper keeps beside its data. */
export interface NodeStat {
  /** The transactions that created the node, and that last changed its data. The upper 32 bits are the leader's epoch. */
  readonly created: bigint;
  readonly modified: bigint;
  /** The time of the last change by the leader's clock, in milliseconds since 1970. */
  readonly mtime: number;
  /** The number of changes of the data since the node was created. */
  readonly version: number;
}

/** A node as {@link getData} reads it. */
export interface NodeData {
  readonly data: Buffer;
  readonly stat: NodeStat;
}

/** The users of a node: `world` for everybody, `creator` for the user of the session that creates the node. */
export type Access = 'world' | 'creator';

const ALL_RIGHTS = 31;

const SCHEMES = { world: ['world', 'anyone'], creator: ['auth', ''] } as const;

/** Any version: the change is not compared. */
export const ANY_VERSION = -1;

export interface CreateOptions {
  readonly access: Access;
  /**
   * `true` for a node that ends with the session.
   * @defaultValue false
   */
  readonly isEphemeral?: boolean;
}

export function create(
  path: string,
  data: Buffer,
  { access, isEphemeral = false }: CreateOptions,
): Change<undefined> {
  const [scheme, id] = SCHEMES[access];
  return {
    isChange: true,
    op: Op.create,
    write: (to, chroot) =>
      to
        .text(chroot + path)
        .bytes(data)
        .int(1)
        .int(ALL_RIGHTS)
        .text(scheme)
        .text(id)
        .int(isEphemeral ? EPHEMERAL : 0),
    read: (from) => void from.text(),
  };
}

/** @param version - the change is refused at any other version of the node; {@link ANY_VERSION} compares nothing */
export function setData(path: string, data: Buffer, version: number): Change<NodeStat> {
  return {
    isChange: true,
    op: Op.setData,
    write: (to, chroot) =>
      to
        .text(chroot + path)
        .bytes(data)
        .int(version),
    read: statOf,
  };
}

/** @param version - as in {@link setData} */
export function remove(path: string, version: number): Change<undefined> {
  return {
    isChange: true,
    op: Op.remove,
    write: (to, chroot) => to.text(chroot + path).int(version),
    read: () => undefined,
  };
}

/** One message of a login by SASL, to which the server answers with its next message. */
export function sasl(message: string): Request<string> {
  return { op: Op.sasl, write: (to) => to.text(message), read: (from) => from.text() };
}

/** Refuses a transaction unless the node exists at this version. */
export function check(path: string, version: number): Change<undefined> {
  return {
    isChange: true,
    op: Op.check,
    write: (to, chroot) => to.text(chroot + path).int(version),
    read: () => undefined,
  };
}

/** @param watch - if `true`, the server tells the next change of the node, once */
export function getData(path: string, watch = false): Request<NodeData> {
  return {
    op: Op.getData,
    write: (to, chroot) => to.text(chroot + path).flag(watch),
    read: (from) => ({ data: from.bytes(), stat: statOf(from) }),
  };
}

/**
 * Reads the state of a node. The server refuses the request if there is no node, and sets the watch even so.
 *
 * @param watch - as in {@link getData}
 */
export function exists(path: string, watch = false): Request<NodeStat> {
  return { op: Op.exists, write: (to, chroot) => to.text(chroot + path).flag(watch), read: statOf };
}

/** @param watch - if `true`, the server tells the next change of the list of children, once */
export function getChildren(path: string, watch = false): Request<readonly string[]> {
  return {
    op: Op.getChildren,
    write: (to, chroot) => to.text(chroot + path).flag(watch),
    read: (from) => from.texts(),
  };
}

/** Waits until the server has all that the leader has confirmed before. The answers to later requests show it. */
export function sync(path: string): Request<undefined> {
  return { op: Op.sync, write: (to, chroot) => to.text(chroot + path), read: (from) => void from.text() };
}

/** Ends the session, and removes its ephemeral nodes. */
export function closeSession(): Request<undefined> {
  return { op: Op.closeSession, write: () => undefined, read: () => undefined };
}

/** A transaction: all changes, or none. The answer has one entry for each change. */
export function multi(changes: readonly Change[]): Request<readonly (NodeStat | undefined)[]> {
  return {
    op: Op.multi,
    write: (to, chroot) => {
      for (const change of changes) {
        to.int(change.op).flag(false).int(-1);
        change.write(to, chroot);
      }
      to.int(-1).flag(true).int(-1);
    },
    read: (from) => multiReplyOf(changes, from),
  };
}

function multiReplyOf(changes: readonly Change[], from: JuteReader): readonly (NodeStat | undefined)[] {
  const results: (NodeStat | undefined)[] = [];
  let refusal: number | undefined;
  for (let index = 0; ; index++) {
    const op = from.int();
    const isEnd = from.flag();
    from.int();
    if (isEnd) break;
    if (op === FAILED) {
      const code = from.int();
      if (code !== 0 && code !== AFTER_THE_REFUSAL) refusal ??= code;
    } else results.push(changes[index]?.read(from));
  }
  if (refusal !== undefined) throw refused(refusal);
  if (results.length !== changes.length) throw new RangeError('a transaction got too few answers');
  return results;
}

/** Encodes a request. */
export function packetOf(xid: number, { op, write }: Request<unknown>, chroot: string): Buffer {
  const writer = new JuteWriter().int(xid).int(op);
  write(writer, chroot);
  return writer.packet();
}

function statOf(from: JuteReader): NodeStat {
  const created = from.long();
  const modified = from.long();
  from.long(); // ctime
  const mtime = Number(from.long());
  const version = from.int();
  from.int(); // version of the list of children
  from.int(); // version of the access rights
  from.long(); // session with which the node ends
  from.int(); // length of the data
  from.int(); // number of children
  from.long(); // last change of the list of children
  return { created, modified, mtime, version };
}
