import { UnfitStoreError } from '../../../core/errors.js';

/** Adds advice to the error of a lost connection, if there is advice for it. */
export function withAdvice(error: Error): Error {
  const advice = adviceOnConnection(error.message);
  if (error instanceof UnfitStoreError || advice === undefined || error.message.includes(advice))
    return error;
  return new Error(`${error.message.replace(/\.$/, '')}; ${advice}`, { cause: error });
}

/** Advice for the error of a lost connection; `undefined` if the error itself is clear enough, or is unknown. */
export function adviceOnConnection(message: string): string | undefined {
  return ADVICE.find(([pattern]) => pattern.test(message))?.[1];
}

const ADVICE: readonly (readonly [RegExp, string])[] = [
  [/All sentinels/, 'check the hosts and ports of the Sentinels, and the name of the master'],
  [/ECONNREFUSED/, 'check the port, and that Redis runs there'],
  [/ENOTFOUND|EAI_AGAIN/, 'check the name of the host'],
  [
    /ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|no answer/,
    'check that the host is up, that no firewall blocks the port, and that the server uses TLS if the URL is rediss://',
  ],
  [/WRONGPASS|NOAUTH|invalid password|without any password/i, 'check the user and the password in the URL'],
  [
    /certificate|altnames|self.signed/i,
    'give the certificate authority as `tls: { ca }`, and connect to a host name that the certificate contains',
  ],
  [
    /wrong version number|packet length|ECONNRESET|socket disconnected|Connection is closed/i,
    'check whether the server wants TLS (rediss://) or not (redis://)',
  ],
  [/Unknown RESP type|Protocol error/i, 'check that the server at that address is Redis'],
];
