/** Codes of ZooKeeper's refusals that the store tells apart. */
export const Refusal = {
  noNode: -101,
  noAuth: -102,
  badVersion: -103,
  nodeExists: -110,
  notEmpty: -111,
  sessionExpired: -112,
  authFailed: -115,
  sessionMoved: -118,
  saslRequired: -124,
} as const;

/** Codes after which the request may have had an effect: errors inside the server, and a lost connection. */
const UNCERTAIN: readonly number[] = [-1, -2, -3, -4, -7];

const MEANINGS: Readonly<Record<number, string>> = {
  [-6]: 'the server does not know this request',
  [Refusal.noNode]: 'no such node',
  [Refusal.noAuth]: 'not allowed',
  [Refusal.badVersion]: 'the node was changed',
  [Refusal.nodeExists]: 'the node exists already',
  [Refusal.notEmpty]: 'the node has children',
  [Refusal.sessionExpired]: 'the session has expired',
  [-114]: 'the access rights are not valid',
  [Refusal.authFailed]: 'the login failed',
  [Refusal.sessionMoved]: 'the session has moved to another server',
  [Refusal.saslRequired]: 'the servers ask for a login by SASL',
  [-125]: 'a quota is exceeded',
};

/** The reason why a request got no answer, or was refused. */
export class ZooKeeperError extends Error {
  override readonly name = 'ZooKeeperError';

  /**
   * @param certain - `true` if the request has no effect, now or later; `false` if it may have had an effect, or may
   * still have one (S16)
   * @param code - ZooKeeper's code, if a server has refused the request
   */
  constructor(
    message: string,
    readonly certain: boolean,
    readonly code?: number,
  ) {
    super(message);
  }
}

/** The error for a server's refusal. */
export function refused(code: number): ZooKeeperError {
  const meaning = MEANINGS[code] ?? 'the request was refused';
  return new ZooKeeperError(`${meaning} (ZooKeeper error ${code})`, !UNCERTAIN.includes(code), code);
}

/** `true` if a server has refused the request for one of these reasons, see {@link Refusal}. */
export function isRefusal(error: unknown, ...codes: readonly number[]): error is ZooKeeperError {
  return error instanceof ZooKeeperError && error.code !== undefined && codes.includes(error.code);
}
