import type { NodeRequest } from './command-line.js';
import { checkNodes } from './check-nodes.js';
import { describe, listDeclared } from './declared.js';
import { inspect } from './inspect.js';
import { leaders } from './leaders.js';
import { list } from './list.js';
import { checkRelease, release } from './release.js';
import { openSession } from './session.js';
import { isRedis } from './targets.js';
import type { CommandTerminal } from './terminal.js';
import { watch } from './watch.js';

/**
 * Runs a command that looks at the locks of the nodes.
 *
 * @returns the exit code
 * @throws UsageError; LockUnavailableError
 */
export async function look(request: NodeRequest, terminal: CommandTerminal): Promise<number> {
  if (request.command === 'doctor' && isRedis(request.target)) {
    const { doctor } = await import('./doctor.js');
    return doctor(request, terminal);
  }
  if (request.command === 'release') checkRelease(request, terminal);
  if (request.command === 'watch' || request.command === 'board') terminal.endOnSignals();
  const session = await openSession(request.target);
  try {
    switch (request.command) {
      case 'doctor':
        return await checkNodes(session, request, terminal);
      case 'list-declared':
        return await listDeclared(session, request, terminal);
      case 'describe':
        return await describe(session, request, terminal);
      case 'list':
        return await list(session, request, terminal);
      case 'leaders':
        return await leaders(session, request, terminal);
      case 'inspect':
        return await inspect(session, request, terminal);
      case 'board': {
        const { board } = await import('./board.js');
        return await board(session, request, terminal);
      }
      case 'watch':
        return await watch(session, request, terminal);
      case 'release':
        return await release(session, request, terminal);
    }
  } finally {
    await session.close();
  }
}
