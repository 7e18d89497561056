import { kindOfValue } from '../../core/checks.js';
import type { Store } from '../../core/ports.js';
import type { StoreContext } from '../../stores/redis/store-context.js';
import { checkNode } from '../check-node.js';
import { openNode } from '../open-stores.js';
import type { RedlockNodeOption } from '../redlock.options.js';
import { LOOKS_ONLY } from './looks-only.js';

/** A file of the application that makes the nodes in the thread. */
export interface OwnNodes {
  /** The `file:` URL of the file. */
  readonly file: string;
  /** The number of nodes of the module. */
  readonly count: number;
}

/**
 * Makes the stores of the thread with the function `nodes` of the application's file.
 *
 * @throws TypeError when the file has no such function, or the function returns other nodes than the module has
 */
export async function openOwnNodes({ file, count }: OwnNodes, context: StoreContext): Promise<Store[]> {
  const { nodes } = (await import(file)) as { readonly nodes?: () => unknown };
  if (typeof nodes !== 'function')
    throw new TypeError(
      `Expected the file of \`threadNodes\` to export a function \`nodes\`, got ${kindOfValue(nodes)}`,
    );
  const made = await nodes();
  const all: readonly unknown[] = Array.isArray(made) ? made : [made];
  // With fewer nodes, a minority of the nodes of the module could confirm a renewal.
  if (all.length !== count || all.includes('memory'))
    throw new TypeError(
      `Expected \`nodes\` of the file of \`threadNodes\` to return the nodes of the module (${count}), ` +
        `got ${all.includes('memory') ? "'memory'" : all.length}`,
    );
  return all.map((node) => {
    checkNode(node, count);
    return openNode(node as RedlockNodeOption, context, LOOKS_ONLY);
  });
}
