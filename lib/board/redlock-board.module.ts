import { type DynamicModule, Module } from '@nestjs/common';
import { Board, BOARD_OPTIONS } from './board.js';
import { boardControllerFor } from './board.controller.js';
import { checkBoardOptions, type RedlockBoardOptions } from './board.options.js';

/**
 * A page of the application that shows its locks as they change: the holders and the waiters of each lock, and how long
 * they have held the lock or waited for it.
 *
 * @example
 * ```ts
 * import { type CanActivate, type ExecutionContext, Injectable, Module } from '@nestjs/common';
 * import { RedlockModule } from 'nestjs-redlock';
 * import { RedlockBoardModule } from 'nestjs-redlock/board';
 *
 * @Injectable()
 * class AdminGuard implements CanActivate {
 *   canActivate(context: ExecutionContext): boolean {
 *     return context.switchToHttp().getRequest().user?.isAdmin === true;
 *   }
 * }
 *
 * @Module({
 *   imports: [
 *     RedlockModule.forRoot({ nodes: 'redis://localhost:6379' }),
 *     RedlockBoardModule.forRoot({ path: '/locks', guards: [AdminGuard] }),
 *   ],
 * })
 * class AppModule {}
 * ```
 * @see docs/board.md
 */
@Module({})
export class RedlockBoardModule {
  /**
   * @throws TypeError naming the wrong option; Error without `guards`, unless `public: true` says that everybody may
   * see the board
   */
  static forRoot(options: RedlockBoardOptions): DynamicModule {
    checkBoardOptions(options);
    return {
      module: RedlockBoardModule,
      imports: options.imports ?? [],
      controllers: [boardControllerFor(options)],
      providers: [{ provide: BOARD_OPTIONS, useValue: options }, Board],
    };
  }
}
