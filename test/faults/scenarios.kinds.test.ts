import { kinds } from './scenarios/kinds.js';
import { playAll } from './suite.js';

playAll([['kinds of lock', kinds]]);
