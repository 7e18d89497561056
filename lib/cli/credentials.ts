import { readFileSync } from 'node:fs';
import type { Target } from './target.js';
import { UsageError } from './usage-error.js';

/** @throws UsageError when the text has an invalid escape */
export function decode(text: string, where: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new UsageError(`Expected ${where} to write "%" as %25 in names and passwords`);
  }
}

export function tlsOf({ ca, cert, key, insecure }: Target): TlsTerms {
  return {
    ...(ca !== undefined && { ca: contentOf('--ca', ca) }),
    ...(cert !== undefined && { cert: contentOf('--cert', cert) }),
    ...(key !== undefined && { key: contentOf('--key', key) }),
    ...(insecure && { rejectUnauthorized: false }),
  };
}

function contentOf(option: string, file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (error) {
    // Someone has given the text of the key, which must not be shown, in place of its file.
    const why = /-----BEGIN|\n/.test(file) ? 'got the content of a file' : (error as Error).message;
    throw new UsageError(`Expected ${option} to be a file that can be read: ${why}`);
  }
}

/** The options of the command line for TLS. */
interface TlsTerms {
  readonly ca?: Buffer;
  readonly cert?: Buffer;
  readonly key?: Buffer;
  readonly rejectUnauthorized?: boolean;
}
