import { clients } from './scenarios/clients.js';
import { network } from './scenarios/network.js';
import { stalls } from './scenarios/stalls.js';
import { playAll } from './suite.js';

playAll([
  ['stalls', stalls],
  ['network', network],
  ['clients', clients],
]);
