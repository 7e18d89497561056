import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Certificate, selfSigned } from './certificate.js';
import { freePort } from './free-port.js';
import { cleanUpAfterTests } from './leftovers.js';
import { type RedisServer, startRedis } from './redis-server.js';

/** A certificate, and the paths of its files. */
export interface CertificateFiles extends Certificate {
  readonly certFile: string;
  readonly keyFile: string;
}

/** A server that also accepts TLS, on a second port. */
export interface TlsServer {
  readonly redis: RedisServer;
  readonly port: number;
}

/** Writes a certificate to files, which are removed after the test file. */
export async function certificateFiles({ cert, key } = selfSigned()): Promise<CertificateFiles> {
  const folder = await mkdtemp(join(tmpdir(), 'tls-test-'));
  cleanUpAfterTests(() => rm(folder, { recursive: true, force: true }));
  const certFile = join(folder, 'cert.pem');
  const keyFile = join(folder, 'key.pem');
  await Promise.all([writeFile(certFile, cert), writeFile(keyFile, key)]);
  return { cert, key, certFile, keyFile };
}

/** @param authClients - `'yes'` if clients need a certificate, too */
export async function startTlsServer(
  { certFile, keyFile }: CertificateFiles,
  authClients: 'yes' | 'no',
): Promise<TlsServer> {
  const port = await freePort();
  const args = ['--tls-port', String(port), '--tls-cert-file', certFile, '--tls-key-file', keyFile];
  args.push('--tls-ca-cert-file', certFile, '--tls-auth-clients', authClients);
  return { redis: await startRedis({ args }), port };
}
