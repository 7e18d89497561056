/** The fields of a server's INFO that matter for locks. */
export interface ServerReport {
  /** The id of this run of the server: each start of a server gets a new id. Empty if not reported. */
  readonly runId: string;
  /** `undefined` if not reported. */
  readonly mode: 'standalone' | 'cluster' | 'sentinel' | undefined;
  /** `undefined` if not reported. */
  readonly role: 'master' | 'slave' | undefined;
  /** The shortest possible uptime of the server, in milliseconds. */
  readonly uptime: number;
  readonly evictionPolicy: string;
  /** `true` with an append-only file; `appendfsync` is not in INFO. */
  readonly appendOnly: boolean;
}

/** Parses the answer to INFO. */
export function parseInfo(info: string): ServerReport {
  const fields = new Map<string, string>();
  for (const line of info.split('\r\n')) {
    const colon = line.indexOf(':');
    if (colon > 0) fields.set(line.slice(0, colon), line.slice(colon + 1));
  }
  return {
    runId: fields.get('run_id') ?? '',
    mode: modeIn(fields),
    role: ROLES.get(fields.get('role') ?? ''),
    // Redis computes the uptime from two times in whole seconds, so the value can be almost a second too large.
    uptime: Math.max(0, Number(fields.get('uptime_in_seconds') ?? 0) - 1) * 1_000,
    evictionPolicy: fields.get('maxmemory_policy') ?? 'noeviction',
    appendOnly: fields.get('aof_enabled') === '1',
  };
}

const ROLES: ReadonlyMap<string, ServerReport['role']> = new Map([
  ['master', 'master'],
  ['slave', 'slave'],
  ['replica', 'slave'],
]);

const MODES: readonly ServerReport['mode'][] = ['standalone', 'cluster', 'sentinel'];

/** Reads the mode. Valkey 8 and later has `server_mode` instead of `redis_mode`. */
function modeIn(fields: ReadonlyMap<string, string>): ServerReport['mode'] {
  const told = fields.get('redis_mode') ?? fields.get('server_mode');
  const mode = MODES.find((each) => each === told);
  if (mode !== undefined) return mode;
  const inCluster = fields.get('cluster_enabled');
  if (inCluster === undefined) return undefined;
  return inCluster === '1' ? 'cluster' : 'standalone';
}
