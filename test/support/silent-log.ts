import type { Log } from '../../lib/core/log.js';

const ignore = (): void => undefined;

/** A log that ignores every line, for programs that need no Nest. */
export const SILENT_LOG: Log = { debug: ignore, log: ignore, warn: ignore, error: ignore };
