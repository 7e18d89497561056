import { crashes } from './scenarios/crashes.js';
import { nodeClock } from './scenarios/node-clock.js';
import { redisErrors } from './scenarios/redis-errors.js';
import { playFurther } from './suite.js';

playFurther([
  ['crashes', crashes],
  ['errors of Redis', redisErrors],
  ['clocks of nodes', nodeClock],
]);
