import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';

/** The service and the name that every ZooKeeper server has in DIGEST-MD5. */
const SERVICE = 'zookeeper/zk-sasl-md5';

/** The number of the request that answers the challenge: each challenge is answered once. */
const COUNT = '00000001';

const QUALITY = 'auth';

/** The directives of a challenge: names with values, in quotation marks or not. */
const DIRECTIVES = /([a-z-]+)=(?:"((?:[^"\\]|\\.)*)"|([^",]*))/g;

/**
 * The client's side of DIGEST-MD5 (RFC 2831), as ZooKeeper's servers ask for it. RFC 6331 withdrew it, and ZooKeeper has
 * no successor but Kerberos. The password does not leave the process, but who hears the exchange can guess at it: use TLS.
 */
export class SaslDigest {
  readonly #nonce = randomBytes(24).toString('base64');
  #expected: Buffer | undefined;

  constructor(
    private readonly username: string,
    private readonly password: string,
  ) {}

  /**
   * Returns the answer to the server's challenge.
   *
   * @throws Error when the challenge is none of DIGEST-MD5, or the user or the password is not ASCII
   */
  answer(challenge: string): string {
    // RFC 2831 and Java encode other characters in different ways.
    if (/[^\x20-\x7E]/.test(this.username + this.password))
      throw new Error('`auth` with the scheme `sasl` takes only letters, digits and signs of ASCII');
    const given = directivesOf(challenge);
    const [nonce, realm = ''] = [given.get('nonce'), given.get('realm')];
    if (nonce === undefined || !(given.get('qop') ?? QUALITY).split(',').includes(QUALITY))
      throw new Error('the server offers no login by DIGEST-MD5');
    const secret = Buffer.concat([
      md5(`${this.username}:${realm}:${this.password}`),
      Buffer.from(`:${nonce}:${this.#nonce}`),
    ]);
    const proofOf = (request: string): string =>
      hex(`${hex(secret)}:${nonce}:${COUNT}:${this.#nonce}:${QUALITY}:${hex(request)}`);
    this.#expected = Buffer.from(proofOf(`:${SERVICE}`));
    return [
      `charset=utf-8,username=${quoted(this.username)},realm=${quoted(realm)},nonce=${quoted(nonce)}`,
      `nc=${COUNT},cnonce=${quoted(this.#nonce)},digest-uri=${quoted(SERVICE)},qop=${QUALITY}`,
      `response=${proofOf(`AUTHENTICATE:${SERVICE}`)}`,
    ].join(',');
  }

  /** `true` if the server's last message proves that the server knows the password, too. */
  isProof(message: string): boolean {
    const proof = Buffer.from(directivesOf(message).get('rspauth') ?? '');
    return this.#expected?.length === proof.length && timingSafeEqual(this.#expected, proof);
  }
}

function directivesOf(message: string): ReadonlyMap<string, string> {
  return new Map(
    [...message.matchAll(DIRECTIVES)].map(([, name = '', inQuotes, plain = '']) => [
      name,
      inQuotes?.replaceAll(/\\(.)/g, '$1') ?? plain,
    ]),
  );
}

function quoted(text: string): string {
  return `"${text.replaceAll(/["\\]/g, '\\$&')}"`;
}

function md5(data: string | Buffer): Buffer {
  return createHash('md5').update(data).digest();
}

function hex(data: string | Buffer): string {
  return md5(data).toString('hex');
}
