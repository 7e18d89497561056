import { LINGER_MS } from '../../lib/core/store-times.js';
import type { Contender } from './contender.js';

export const ours: Contender = {
  name: 'ours',
  packages: ['nestjs-redlock', 'ioredis'],
  quorum: true,
  linger: LINGER_MS,
  sends: [],
  lacks: [],
  open: async (urls) => (await import('./ours-app.js')).openOurs(urls),
};

export const oursDecorated: Contender = {
  ...ours,
  name: 'ours, @WithLock',
  open: async (urls) => (await import('./ours-app.js')).openDecorated(urls),
};
