import type { Cluster, Redis } from 'ioredis';
import { withTimeout } from '../core/with-timeout.js';
import { type CommandChannel, isRefusal } from '../stores/redis/connection/command-channel.js';
import { adviceOnConnection } from '../stores/redis/connection/connection-advice.js';
import { ClusterSubscriber } from '../stores/redis/pubsub/cluster-subscriber.js';
import { identityKey, probeKey, wakeChannel } from '../stores/redis/lock-key.js';
import { NO_INFO, unsafeBecause, untoldBy, weakBecause } from '../stores/redis/health/server-weaknesses.js';
import { type ServerReport, parseInfo } from '../stores/redis/health/server-report.js';
import { becauseOf } from '../core/errors.js';
import { type Identity, parseIdentity } from '../stores/redis/scripts/identity.js';
import { PROBE } from '../stores/redis/scripts/probe.js';
import { adviceOnKinds, PROBE_KINDS } from '../stores/redis/scripts/probe-kinds.js';
import { copyForMessages, Subscriber } from '../stores/redis/pubsub/subscriber.js';
import { NODE_LIMIT_MS } from './session.js';

/**
 * Something to change in the setup. With the level `problem`, locks fail or are unsafe; with the level `warning`, locks
 * are weaker than they could be.
 */
export interface Finding {
  readonly level: 'problem' | 'warning';
  readonly text: string;
}

/** Findings about one server. */
export interface ServerExam {
  readonly name: string;
  readonly version: string | undefined;
  readonly report: ServerReport | undefined;
  /**
   * With an append-only file, the value of `appendfsync`, or `'yes'` if the server does not tell that value. Otherwise
   * `'none'`.
   */
  readonly persistence: string | undefined;
  /** Median and longest of several round trips, in milliseconds. */
  readonly roundTrip: { readonly median: number; readonly worst: number } | undefined;
  /** Milliseconds by which the server's clock is ahead of this machine's clock, accurate to half a round trip. */
  readonly clockAhead: number | undefined;
  readonly findings: readonly Finding[];
  /** `true` if locks must not be on the server at all. Its other settings do not matter then. */
  readonly isUnsafe?: boolean;
}

/** The number of round trips that are measured. */
const SAMPLES = 20;

/** Major and minor number of the oldest supported version: see docs/choosing-nodes.md. */
const OLDEST_VERSION = [6, 2] as const;

/**
 * The name of a channel contains the key of a lock and the name of a process. The check gives this text for both: no
 * application has such a key or process.
 */
const PROBE_NAME = 'redlock-doctor';

/**
 * @param guarded - `true` if the application does not count the votes of restarted nodes, so that a node that loses its
 * data at a restart is no danger
 */
export async function examineServer(
  name: string,
  server: Redis,
  inCluster: boolean,
  guarded: boolean,
): Promise<ServerExam> {
  const findings: Finding[] = [];
  const problem = (text: string): unknown => findings.push({ level: 'problem', text });
  const warning = (text: string): unknown => findings.push({ level: 'warning', text });
  const timing = await measure(server).catch((error: Error) => void problem(adviceOn(error)));
  const unanswered = { name, version: undefined, report: undefined, persistence: undefined };
  if (!timing) return { ...unanswered, roundTrip: undefined, clockAhead: undefined, findings };

  let info: string;
  try {
    info = await withTimeout(server.info(), NODE_LIMIT_MS);
  } catch (error) {
    if (!isRefusal(error)) throw error;
    warning(NO_INFO);
    return { ...unanswered, ...timing, findings };
  }
  const report = parseInfo(info);
  const unsafe = unsafeBecause(inCluster ? { ...report, mode: 'standalone' } : report, undefined);
  const version = versionIn(info);
  const product = /^server_name:(\S+)/m.exec(info)?.[1] ?? 'redis';
  const known = { name, version: `${product} ${version}`, report, ...timing, findings };
  if (unsafe !== undefined) {
    problem(unsafe);
    return { ...known, persistence: undefined, isUnsafe: true };
  }
  if (!inCluster) untoldBy(report).forEach(warning);
  const appendfsync = report.appendOnly ? await appendfsyncOf(server) : undefined;
  for (const text of weakBecause(report, 'always', true)) problem(text);
  for (const text of weakBecause({ ...report, evictionPolicy: 'noeviction' }, appendfsync, guarded))
    warning(text);
  const upgrade = adviceOnVersion(version);
  if (upgrade !== undefined) problem(upgrade);
  const persistence = report.appendOnly ? (appendfsync ?? 'yes') : 'none';
  return { ...known, persistence };
}

/** Checks that the user may run the commands of locks. */
export async function examineRights(channel: CommandChannel, keyPrefix: string): Promise<Finding[]> {
  const { client } = channel;
  const findings: Finding[] = [];
  const key = probeKey(keyPrefix);
  try {
    await withTimeout(channel.run(PROBE, [1, key]), NODE_LIMIT_MS);
    // If the server has the script in its cache, the request above did not contain the text of the script. Send the
    // text now, because locks must send it after a restart of the server.
    await withTimeout(client.eval(PROBE.lua, 1, key), NODE_LIMIT_MS);
    const advice = adviceOnKinds(await withTimeout(channel.run(PROBE_KINDS, [1, key]), NODE_LIMIT_MS));
    if (advice !== undefined) findings.push({ level: 'warning', text: advice });
  } catch (error) {
    findings.push({ level: 'problem', text: adviceOn(error as Error, keyPrefix) });
  }
  try {
    const wake = wakeChannel(keyPrefix, client.isCluster, PROBE_NAME, PROBE_NAME);
    await publishAndSubscribe(client as Redis | Cluster, wake);
  } catch (error) {
    const reason = (error as Error).message;
    const rights = `+publish +subscribe +spublish +ssubscribe +sunsubscribe &${keyPrefix}*`;
    const advice = reason.includes('NOPERM') ? `; allow Pub/Sub with ACL SETUSER <user> ${rights}` : '';
    const text = `Pub/Sub messages do not work (${reason}), so waiters for a lock have to poll${advice}`;
    findings.push({ level: 'warning', text });
  }
  return findings;
}

/**
 * Tells whether another run of a server wrote the data of a node (S28), because applications with a restart guard then
 * do not count its votes for a while. A node without an identity key has not been used with the guard.
 */
export async function examineIdentity(
  client: Redis,
  keyPrefix: string,
  [exam]: readonly ServerExam[],
): Promise<Finding[]> {
  const runId = exam?.report?.runId ?? '';
  let value: string | null;
  try {
    value = await withTimeout(client.get(identityKey(keyPrefix)), NODE_LIMIT_MS);
  } catch (error) {
    if (isRefusal(error)) return [];
    throw error;
  }
  const identity = parseIdentity(value);
  if (!identity || runId === '') return [];
  const text = identityFinding(identity, runId, Date.now() + (exam?.clockAhead ?? 0));
  return text === undefined ? [] : [{ level: 'warning', text }];
}

/** Milliseconds after the first sight for which the doctor tells it: the guard of most applications is shorter. */
const TELL_FOR_MS = 60_000;

/** @param now - milliseconds since 1970 on the server's clock */
export function identityFinding(identity: Identity, runId: string, now: number): string | undefined {
  if (identity.runId !== runId)
    return `${becauseOf('server')}; its votes count one restartGuard after the next application connects`;
  const ago = now - identity.since;
  if (!identity.cause || ago < 0 || ago >= TELL_FOR_MS) return undefined;
  return (
    `${becauseOf(identity.cause)}, first seen ${Math.round(ago / 1_000)} s ago; its votes count ` +
    'one `restartGuard` after that'
  );
}

/** Explains an error of a server or of a connection, with advice. */
export function adviceOn(error: Error, keyPrefix = 'lock:'): string {
  // When all nodes of a Cluster fail, the message of ioredis says only that it gave up; the cause is in
  // `lastNodeError`.
  const { message } = (error as { lastNodeError?: Error }).lastNodeError ?? error;
  const advice = ADVICE.find(([pattern]) => pattern.test(message))?.[1] ?? adviceOnConnection(message);
  return advice === undefined ? message : `${message}; ${advice.replace('{prefix}', keyPrefix)}`;
}

const ADVICE: readonly (readonly [RegExp, string])[] = [
  [
    /certificate|altnames|self.signed/i,
    'give the certificate authority with --ca FILE, and connect to a host name that the certificate contains',
  ],
  [
    /NOPERM|user executing the script|ACL failure in script/,
    'allow the command with ACL SETUSER <user> ~{prefix}* +@read +@write +@scripting +time +info',
  ],
  [/^OOM/, 'nothing can be locked without free memory; raise maxmemory'],
  [/^MISCONF/, 'nothing can be locked until the server can write to its disk; see its log'],
  [
    /^NOREPLICAS/,
    'nothing can be locked while fewer than min-replicas-to-write replicas are connected; set min-replicas-to-write to 0',
  ],
  [/^READONLY/, 'give the master instead'],
  [/^LOADING/, 'wait until the server has loaded its data'],
  [/cluster support disabled/, 'the server is no Cluster; write redis:// for one server'],
  [/^CLUSTERDOWN/, 'see CLUSTER INFO and CLUSTER NODES'],
];

async function measure(server: Redis): Promise<Required<Pick<ServerExam, 'roundTrip' | 'clockAhead'>>> {
  const samples: { took: number; ahead: number }[] = [];
  for (let sample = 0; sample < SAMPLES; sample++) {
    const sent = performance.now();
    const [seconds, micros] = await withTimeout(server.time(), NODE_LIMIT_MS);
    const took = performance.now() - sent;
    // The server read its clock about halfway through the round trip.
    const ahead = Number(seconds) * 1_000 + Number(micros) / 1_000 - (Date.now() - took / 2);
    samples.push({ took, ahead });
  }
  const sorted = samples.toSorted((a, b) => a.took - b.took);
  const [quickest, median, worst] = [sorted[0], sorted[SAMPLES / 2], sorted.at(-1)];
  if (!quickest || !median || !worst) throw new Error('nothing was measured');
  const roundTrip = { median: toMicros(median.took), worst: toMicros(worst.took) };
  return { roundTrip, clockAhead: toMicros(quickest.ahead) };
}

/** Rounds milliseconds to microseconds; further digits carry no information. */
function toMicros(milliseconds: number): number {
  return Math.round(milliseconds * 1_000) / 1_000;
}

/** Reads `appendfsync`; `undefined` when the server does not tell its value, as on many managed services. */
async function appendfsyncOf(server: Redis): Promise<string | undefined> {
  try {
    const [, value] = (await withTimeout(server.config('GET', 'appendfsync'), NODE_LIMIT_MS)) as string[];
    return value;
  } catch (error) {
    if (isRefusal(error)) return undefined;
    throw error;
  }
}

/** Tests Pub/Sub messages with the same commands that locks use. */
async function publishAndSubscribe(client: Redis | Cluster, channel: string): Promise<void> {
  await withTimeout(
    client.isCluster ? (client as Cluster).spublish(channel, '') : client.publish(channel, ''),
    NODE_LIMIT_MS,
  );
  let subscriber: Subscriber | ClusterSubscriber | undefined;
  try {
    const heard = new Promise<void>((resolve, reject) => {
      const denied = (): void => reject(new Error('NOPERM the user may not subscribe'));
      subscriber = client.isCluster
        ? new ClusterSubscriber(client, denied)
        : new Subscriber(() => copyForMessages(client as Redis), false, denied);
      const ready = (arriving: boolean): void => {
        if (arriving) resolve();
      };
      subscriber.listen(channel, { message: () => undefined, ready });
    });
    await withTimeout(heard, NODE_LIMIT_MS);
  } finally {
    subscriber?.close();
  }
}

/** Advice about a version that is too old; `undefined` for a supported, unknown or non-numeric version. */
export function adviceOnVersion(version: string): string | undefined {
  const [major = NaN, minor = NaN] = version.split('.').map((part) => Number.parseInt(part, 10));
  const [oldest, leastMinor] = OLDEST_VERSION;
  return major < oldest || (major === oldest && minor < leastMinor)
    ? `the server has version ${version}; upgrade to ${oldest}.${leastMinor} or later (locks are tested on 7.0)`
    : undefined;
}

function versionIn(info: string): string {
  const own = /^server_name:(\S+)/m.exec(info)?.[1];
  const field = own === undefined ? 'redis_version' : `${own}_version`;
  return new RegExp(`^${field}:(\\S+)`, 'm').exec(info)?.[1] ?? '';
}
