import { types } from 'node:util';

/** The text of an error that the server sent with a code that GLIDE knows; it then names the kind of the code. */
const KNOWN = /^An error was signalled by the server: - (\w+): ?(.*)$/s;

/** The text of an error that the server, or a script, sent with another code. */
const OTHER = /^([A-Z][A-Z0-9_]+): (.*)$/s;

/** The codes of the kinds of errors whose name in capitals is not the code. */
const CODES: Readonly<Record<string, string>> = {
  ResponseError: 'ERR',
  NoScriptError: 'NOSCRIPT',
  BusyLoadingError: 'LOADING',
  PermissionDenied: 'NOPERM',
  ExecAbortError: 'EXECABORT',
};

/** Gives an answer of GLIDE the form of ioredis: bytes as text, errors of the server as such, and maps as flat lists. */
export function likeIoredis(answer: unknown): unknown {
  if (types.isUint8Array(answer))
    return Buffer.from(answer.buffer, answer.byteOffset, answer.length).toString();
  // The native part of GLIDE makes such an error, in a realm of its own.
  if (types.isNativeError(answer)) return asReplyError(answer);
  if (!Array.isArray(answer)) return answer;
  const entries = answer.length > 0 && answer.every(isEntry);
  return (entries ? answer.flatMap(({ key, value }) => [key, value]) : answer).map(likeIoredis);
}

/** Gives an error of the server the text and the name of ioredis. An error of GLIDE itself keeps its text. */
function asReplyError(error: Error): Error {
  const [, kind, known] = KNOWN.exec(error.message) ?? [];
  const [, code, other] = OTHER.exec(error.message) ?? [];
  if (kind === undefined && code === undefined) return new Error(error.message, { cause: error });
  const text = kind === undefined ? `${code} ${other}` : `${CODES[kind] ?? kind.toUpperCase()} ${known}`;
  return Object.assign(new Error(text, { cause: error }), { name: 'ReplyError' });
}

function isEntry(item: unknown): item is { readonly key: unknown; readonly value: unknown } {
  return typeof item === 'object' && item !== null && 'key' in item && 'value' in item;
}
