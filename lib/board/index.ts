export { RedlockBoardModule } from './redlock-board.module.js';
export type { RedlockBoardOptions } from './board.options.js';
