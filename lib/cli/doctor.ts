import type { Cluster, Redis } from 'ioredis';
import { CommandChannel } from '../stores/redis/connection/command-channel.js';
import { addressOf, nameOf } from '../stores/redis/connection/connection.js';
import { NO_SUCH_DATABASE, unsafeBecause } from '../stores/redis/health/server-weaknesses.js';
import { withTimeout } from '../core/with-timeout.js';
import { quorumOf } from '../redlock/quorum.js';
import type { RequestFor } from './command-line.js';
import { ExitCode } from './exit-code.js';
import { printableText } from '../core/printable.js';
import { duration, table } from './format.js';
import { openNodes } from './node-url.js';
import {
  adviceOn,
  examineIdentity,
  examineRights,
  examineServer,
  type Finding,
  type ServerExam,
} from './server-check.js';
import { NODE_LIMIT_MS } from './session.js';
import { print, printJson, type Terminal } from './terminal.js';

/**
 * The restart guard is on by default if there are at least this many nodes: a restarted node then does not vote for
 * some time.
 */
const GUARDED_FROM = 3;

/** Smallest reported difference of clocks, in milliseconds; NTP keeps clocks much closer. */
const CLOCK_TOLERANCE_MS = 500;

/** Findings about one node: one server, or the masters of a Cluster. */
interface NodeExam {
  readonly name: string;
  readonly servers: readonly ServerExam[];
  readonly findings: readonly Finding[];
}

/** Findings about all nodes together. */
interface Diagnosis {
  readonly nodes: readonly NodeExam[];
  readonly findings: readonly Finding[];
  /** Number of nodes that answered, whether or not they are fit to vote. */
  readonly answering: number;
  readonly quorum: number;
}

export async function doctor({ target, json }: RequestFor<'doctor'>, terminal: Terminal): Promise<number> {
  const channels = openNodes(target).map((client) => new CommandChannel(client, true));
  const guarded = channels.length >= GUARDED_FROM;
  try {
    const opening = channels.map((channel) => withTimeout(channel.open(), NODE_LIMIT_MS));
    await Promise.allSettled(opening);
    const nodes: NodeExam[] = [];
    const names = new Set<string>();
    for (const [index, channel] of channels.entries()) {
      // Examine one node after another: concurrent measurements of round trips disturb each other.
      const name = nameOf(channel.client, names);
      nodes.push(await examineNode(name, channel, opening[index], target.keyPrefix, guarded));
    }
    const diagnosis = diagnose(nodes);
    if (json) printJson(terminal, jsonOf(diagnosis));
    else print(terminal, ...linesOf(diagnosis));
    if (diagnosis.answering < diagnosis.quorum) return ExitCode.Unavailable;
    return count(diagnosis, 'problem') > 0 ? ExitCode.No : ExitCode.Ok;
  } finally {
    for (const { client } of channels) client.disconnect();
  }
}

async function examineNode(
  name: string,
  channel: CommandChannel,
  opened: Promise<void> | undefined,
  keyPrefix: string,
  guarded: boolean,
): Promise<NodeExam> {
  const { client } = channel;
  const servers: ServerExam[] = [];
  try {
    await opened?.catch(async (error: Error) => Promise.reject(await reasonOf(channel, error)));
    for (const server of serversOf(client as Redis | Cluster)) {
      const itsName = client.isCluster ? addressOf(server) : name;
      servers.push(await examineServer(itsName, server, client.isCluster, guarded && !client.isCluster));
    }
    // A replica refuses each write, and a Sentinel each script: the reason is already known.
    if (servers.some(({ isUnsafe }) => isUnsafe)) return { name, servers, findings: [] };
    const findings = await examineRights(channel, keyPrefix);
    if (!client.isCluster) findings.push(...(await examineIdentity(client as Redis, keyPrefix, servers)));
    if (channel.lacksDatabase) findings.unshift({ level: 'problem', text: NO_SUCH_DATABASE });
    return { name, servers, findings };
  } catch (error) {
    return { name, servers, findings: [{ level: 'problem', text: adviceOn(error as Error) }] };
  }
}

/**
 * Returns the reason why a node is not connected: the last connection error if there is one, else the exceeded time
 * limit.
 */
async function reasonOf(channel: CommandChannel, failure: Error): Promise<Error> {
  const refusal: unknown = await channel.send(() => Promise.resolve()).catch((error: Error) => error.cause);
  return refusal instanceof Error ? refusal : failure;
}

function serversOf(client: Redis | Cluster): Redis[] {
  return client.isCluster ? (client as Cluster).nodes('master') : [client as Redis];
}

/** Adds the findings that need a comparison of all nodes. */
function diagnose(nodes: readonly NodeExam[]): Diagnosis {
  const firstWith = new Map<string, string>();
  const compared = nodes.map((node) => {
    const findings = [...node.findings];
    for (const { name, report } of node.servers) {
      // Some servers that speak the Redis protocol have no run id.
      if (!report || report.runId === '') continue;
      const twin = firstWith.get(report.runId);
      const same = unsafeBecause({ ...report, mode: 'standalone', role: 'master' }, twin);
      if (same !== undefined) findings.push({ level: 'problem', text: same });
      else firstWith.set(report.runId, name);
    }
    return { ...node, findings };
  });
  const findings: Finding[] = [];
  const clocks = nodes.flatMap(({ servers }) => servers.flatMap(({ clockAhead }) => clockAhead ?? []));
  const difference = Math.max(...clocks) - Math.min(...clocks);
  if (difference > CLOCK_TOLERANCE_MS) {
    const text = `the clocks of the nodes differ by ${duration(difference)}; synchronize them with NTP`;
    findings.push({ level: 'warning', text });
  }
  if (nodes.length % 2 === 0) {
    const text = `${nodes.length} nodes tolerate no more failures than ${nodes.length - 1} would; use an odd number of nodes`;
    findings.push({ level: 'warning', text });
  }
  const answering = nodes.filter(({ servers }) => servers.some(({ roundTrip }) => roundTrip)).length;
  return { nodes: compared, findings, answering, quorum: quorumOf(nodes.length) };
}

function allOf({ findings, servers }: NodeExam): Finding[] {
  return [...findings, ...servers.flatMap((server) => server.findings)];
}

function count({ nodes, findings }: Diagnosis, kind: Finding['level']): number {
  return [...findings, ...nodes.flatMap(allOf)].filter(({ level }) => level === kind).length;
}

function linesOf(diagnosis: Diagnosis): string[] {
  const { nodes, findings, answering, quorum } = diagnosis;
  const rows = nodes.flatMap(({ name, servers }) => (servers.length > 0 ? servers.map(rowOf) : [[name]]));
  const heading = ['NODE', 'SERVER', 'UP', 'ROUND TRIP', 'WORST', 'CLOCK', 'APPENDFSYNC', 'EVICTION'];
  const said = [
    ...nodes.flatMap((node) => node.findings.map((finding) => lineOf(finding, node.name))),
    ...nodes.flatMap(({ servers }) =>
      servers.flatMap((server) => server.findings.map((finding) => lineOf(finding, server.name))),
    ),
    ...findings.map((finding) => lineOf(finding)),
  ];
  const sum =
    `${answering} of ${nodes.length} nodes answer, and ${quorum} are needed; ` +
    `problems: ${count(diagnosis, 'problem')}, warnings: ${count(diagnosis, 'warning')}`;
  return [...table(heading, rows), '', ...said, ...(said.length > 0 ? [''] : []), sum];
}

function rowOf({ name, version, report: server, roundTrip, clockAhead, persistence }: ServerExam): string[] {
  return [
    name,
    version ?? '',
    server ? duration(server.uptime) : '',
    roundTrip ? `${roundTrip.median.toFixed(2)} ms` : '',
    roundTrip ? `${roundTrip.worst.toFixed(2)} ms` : '',
    clockAhead === undefined ? '' : `${clockAhead < 0 ? '-' : '+'}${duration(Math.abs(clockAhead))}`,
    persistence ?? '',
    server?.evictionPolicy ?? '',
  ];
}

function lineOf({ level, text }: Finding, name?: string): string {
  return `${level}: ${name === undefined ? '' : `${name}: `}${printableText(text)}`;
}

function jsonOf(diagnosis: Diagnosis): object {
  const { nodes, findings, answering, quorum } = diagnosis;
  return {
    answering,
    quorum,
    problems: count(diagnosis, 'problem'),
    warnings: count(diagnosis, 'warning'),
    findings,
    nodes: nodes.map((node) => ({
      node: node.name,
      findings: allOf(node),
      servers: node.servers.map(({ name, version, report: server, roundTrip, clockAhead, persistence }) => ({
        server: name,
        version: version ?? null,
        role: server?.role ?? null,
        uptime: server?.uptime ?? null,
        roundTrip: roundTrip ?? null,
        clockAhead: clockAhead ?? null,
        appendfsync: persistence ?? null,
        eviction: server?.evictionPolicy ?? null,
      })),
    })),
  };
}
