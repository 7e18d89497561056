import { clients } from './scenarios/clients.js';
import { crashes } from './scenarios/crashes.js';
import { kinds } from './scenarios/kinds.js';
import { redisErrors } from './scenarios/redis-errors.js';
import { stalls } from './scenarios/stalls.js';
import { playEssential } from './suite.js';

playEssential([
  ['crashes', crashes],
  ['errors of Redis', redisErrors],
  ['stalls', stalls],
  ['clients', clients],
  ['kinds of lock', kinds],
]);
