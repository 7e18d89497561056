import { kinds } from './scenarios/kinds.js';
import { playFurther } from './suite.js';

playFurther([['kinds of lock', kinds]]);
