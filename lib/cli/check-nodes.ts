import type { RequestFor } from './command-line.js';
import { ExitCode } from './exit-code.js';
import { printableText } from '../core/printable.js';
import type { Session } from './session.js';
import { print, printJson, type Terminal } from './terminal.js';

/** Prints whether each node is fit to vote, and its warnings. Only for stores other than Redis. */
export async function checkNodes(
  { inspection }: Session,
  { json }: RequestFor<'doctor'>,
  terminal: Terminal,
): Promise<number> {
  const status = await inspection.checkNodes();
  if (json) printJson(terminal, status);
  else
    for (const { node, state, reason, warnings } of status.nodes) {
      print(terminal, printableText(`${node}  ${state}${reason === undefined ? '' : `: ${reason}`}`));
      print(terminal, ...warnings.map((warning) => `warning: ${printableText(warning)}`));
    }
  if (status.nodes.some(({ state }) => state === 'unreachable')) return ExitCode.Unavailable;
  return status.available ? ExitCode.Ok : ExitCode.No;
}
