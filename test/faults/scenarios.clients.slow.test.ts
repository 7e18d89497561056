import { clients } from './scenarios/clients.js';
import { network } from './scenarios/network.js';
import { nodeRedis, valkeyGlide } from './scenarios/passed-in-clients.js';
import { stalls } from './scenarios/stalls.js';
import { playFurther } from './suite.js';

playFurther([
  ['stalls', stalls],
  ['network', network],
  ['clients', clients],
  ['clients of node-redis passed in by the application', nodeRedis],
  ['clients of Valkey GLIDE passed in by the application', valkeyGlide],
]);
