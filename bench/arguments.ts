import { parseArgs } from 'node:util';
import { contender, CONTENDERS } from './contenders/contenders.js';
import type { Group, Plan } from './groups/group.js';
import { GROUPS } from './groups/groups.js';

export interface BenchArguments {
  readonly help: boolean;
  /** Groups in the order of the command line; all groups if the command line names none. */
  readonly groups: readonly Group[];
  readonly plan: Plan;
  /** Folder for the results. */
  readonly out: string;
}

export const USAGE = `npm run bench -- [group ...] [options]

  groups      ${names(GROUPS)}; all of them by default
  --only      contenders, separated by commas: ${names(CONTENDERS)}
  --nodes     numbers of nodes, separated by commas; 1,5 by default
  --effort    multiplies the repetitions; 1 by default
  --out       folder for results.json, results.md and the plots; dist/bench-results by default
  --help      this text`;

/**
 * Reads the command line.
 *
 * @throws Error that says in one line what is wrong and how to correct it
 */
export function readArguments(args: readonly string[]): BenchArguments {
  const { values, positionals } = parse(args);
  const groups = positionals.map((name) => {
    const found = GROUPS.find((each) => each.name === name);
    if (!found) throw new Error(`There is no group "${name}"; there are ${names(GROUPS)}`);
    return found;
  });
  const nodes = values.nodes.split(',').map(Number);
  if (!nodes.every((number) => Number.isInteger(number) && number >= 1)) {
    const rule = 'whole numbers, at least 1, separated by commas, such as 1,5';
    throw new Error(`--nodes must be ${rule}; not "${values.nodes}"`);
  }
  const effort = Number(values.effort);
  if (!(effort > 0 && effort < Infinity)) {
    throw new Error(`--effort must be a number above 0, such as 0.1; not "${values.effort}"`);
  }
  const only = values.only?.split(',').map(contender) ?? CONTENDERS;
  // Keep the order of CONTENDERS, not the given order: ratios refer to the first library of the list.
  const contenders = CONTENDERS.filter((each) => only.includes(each));
  return {
    help: values.help,
    groups: groups.length > 0 ? groups : GROUPS,
    plan: { contenders, effort, nodes },
    out: values.out,
  };
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: {
        only: { type: 'string' },
        nodes: { type: 'string', default: '1,5' },
        effort: { type: 'string', default: '1' },
        out: { type: 'string', default: 'dist/bench-results' },
        help: { type: 'boolean', default: false },
      },
    });
  } catch (error) {
    // Show only the first sentence. For an unknown option, the next sentence explains how to pass an argument that
    // begins with a dash, but no group has a name that begins with a dash.
    const [what] = (error as Error).message.split(/[.\n]/);
    throw new Error(`${what}; npm run bench -- --help lists the options`, { cause: error });
  }
}

function names(all: readonly { readonly name: string }[]): string {
  return all.map(({ name }) => name).join(', ');
}
