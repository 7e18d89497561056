import { generateKeyPairSync, type KeyObject, randomBytes, sign } from 'node:crypto';

export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

/**
 * Makes a self-signed certificate for 127.0.0.1 that is valid for a day. Neither Node nor a bare machine has a tool for
 * certificates, and a committed key would look like a secret.
 */
export function selfSigned(): Certificate {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const ecdsaWithSha256 = sequence(oid(0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02));
  const name = sequence(set(sequence(oid(0x55, 0x04, 0x03), der(0x0c, Buffer.from('127.0.0.1')))));
  const day = 86_400_000;
  const certified = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))), // version 3
    der(0x02, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    ecdsaWithSha256,
    name,
    sequence(utcTime(Date.now() - day), utcTime(Date.now() + day)),
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
    der(
      0xa3,
      sequence(
        // The certificate is its own authority (basicConstraints), and is for this address (subjectAltName).
        extension([0x55, 0x1d, 0x13], sequence(der(0x01, Buffer.from([0xff])))),
        extension([0x55, 0x1d, 0x11], sequence(der(0x87, Buffer.from([127, 0, 0, 1])))),
      ),
    ),
  );
  const cert = sequence(certified, ecdsaWithSha256, bitString(sign('sha256', certified, privateKey)));
  return { cert: pem('CERTIFICATE', cert), key: pemOf(privateKey) };
}

/** Encodes one value for X.509 (ASN.1 DER): its tag, its length, its content. */
function der(tag: number, ...parts: Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const size =
    length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

const sequence = (...parts: Buffer[]): Buffer => der(0x30, ...parts);
const set = (...parts: Buffer[]): Buffer => der(0x31, ...parts);
const oid = (...bytes: number[]): Buffer => der(0x06, Buffer.from(bytes));
const bitString = (bits: Buffer): Buffer => der(0x03, Buffer.from([0]), bits);
const extension = (id: number[], value: Buffer): Buffer => sequence(oid(...id), der(0x04, value));

function utcTime(time: number): Buffer {
  const digits = new Date(time).toISOString().replaceAll(/\D/g, '').slice(2, 14);
  return der(0x17, Buffer.from(`${digits}Z`));
}

function pem(label: string, bytes: Buffer): string {
  const lines = bytes.toString('base64').match(/.{1,64}/g)!;
  return [`-----BEGIN ${label}-----`, ...lines, `-----END ${label}-----`, ''].join('\n');
}

function pemOf(key: KeyObject): string {
  return key.export({ type: 'pkcs8', format: 'pem' }) as string;
}
