import type { StoreTerms } from '../../lib/core/store-factory.js';

/** What a store is opened with; `warnings` collects what it warns of, `events` whether it is there. */
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
