import type { Finding, Rule } from './judge/rules.js';
import { RULES } from './judge/rules.js';
import type { Library } from './node/load.js';
import { described } from './plans/faults.js';
import type { Plan } from './plans/plan.js';
import { Simulation } from './simulation.js';

/** The number of lines of a story. */
const LINES = 24;

/** Tells a person how the world of a plan breaks a promise. */
export function storyOf(plan: Plan, rule: Rule | undefined, library: Library): string[] {
  const { log, findings, hash } = new Simulation(plan, library, {
    keepsLog: true,
    stopAt: rule === undefined ? [] : [rule],
  }).run();
  const { events, seed, ...world } = plan;
  const finding = findings.find((each) => rule === undefined || each.rule === rule);
  return [
    `seed    ${seed}`,
    `world   ${JSON.stringify(world)}`,
    ...events.map((event) => `fault   ${described(event)}`),
    ...(finding ? told(finding, log) : ['no promise was broken']),
    `hash    ${hash}`,
  ];
}

/** The lines of the log that concern the finding: its processes and its key, and all faults. */
function told({ rule, text }: Finding, log: readonly string[]): string[] {
  const end = log.findIndex((line) => line.includes(`*** ${rule}`));
  const names = new Set(text.match(/\bp\d+(?:\.\d+)?\b/g));
  const [, key] =
    /\b(?:hold|got|keeps|lost|that|for|acquires|waits for) "?(long|tick|leader:L|[a-dsq](?:,[a-c])*)\b/.exec(
      text,
    ) ?? [];
  const [, id] = /for ([\da-f]{6}) of/.exec(text) ?? [];
  const concerns = (line: string): boolean =>
    /FAULT|\*\*\*|all faults end/.test(line) ||
    (id !== undefined && line.includes(id)) ||
    ([...names].some((name) => line.includes(` ${name} `)) &&
      (key === undefined || new RegExp(`\\b${key}\\b`).test(line)));
  const lines = log.slice(0, end + 1).filter(concerns);
  return [`broken  ${rule}: ${RULES[rule]}`, ...lines.slice(-LINES).map((line) => `        ${line}`)];
}
