import { ensureRedisServer } from './install-redis.mjs';

// JavaScript, not TypeScript: Jest loads its global set-up without the transform when the package is ESM.
export default ensureRedisServer;
