import type { StoreTerms } from '../../lib/core/store-factory.js';

/** Makes the terms of a store; `warnings` collects its warnings, `events` the states of its connection. */
export function newTerms(): StoreTerms & { readonly warnings: string[]; readonly events: string[] } {
  const warnings: string[] = [];
  const events: string[] = [];
  return {
    keyPrefix: 'lock:',
    warnOnce: (text) => {
      if (!warnings.includes(text)) warnings.push(text);
    },
    lost: () => void events.push('lost'),
    ready: () => void events.push('ready'),
    warnings,
    events,
  };
}
