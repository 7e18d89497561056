import type { DeclaredRow } from '../live/messages.js';
import type { LockDeclaration } from '../service/declarations.js';

/** Returns a declared lock as the page shows it. */
export function declaredRow(declaration: LockDeclaration): DeclaredRow {
  const { name, keys, team, about, mode, permits, overridden } = declaration;
  return {
    name,
    keys: keys ?? null,
    ...(team !== undefined && { team }),
    ...(about !== undefined && { about }),
    mode,
    ...(permits !== undefined && { permits }),
    policy: policyOf(declaration),
    overridden,
  };
}

/** Returns the ttl and the options that differ from their defaults. */
function policyOf(declaration: LockDeclaration): string {
  const { ttl, renew, minHold, maxHold, reentrant, onLost, onBusy, oncePerTick } = declaration;
  const parts = [
    `ttl ${ttl}`,
    renew ? '' : 'renew false',
    minHold > 0 ? `minHold ${minHold}` : '',
    maxHold === undefined ? '' : `maxHold ${maxHold}`,
    onBusy === 'throw' ? '' : `onBusy ${onBusy}`,
    oncePerTick ? 'oncePerTick' : '',
    reentrant ? 'reentrant' : '',
    onLost === 'throw' ? '' : `onLost ${onLost}`,
  ];
  return parts.filter((part) => part !== '').join(', ');
}
