import type { CanActivate, ModuleMetadata, Type } from '@nestjs/common';
import { badOption, checkBoolean, checkOptionNames } from '../core/checks.js';

/** Options of {@link RedlockBoardModule.forRoot}. */
export interface RedlockBoardOptions {
  /**
   * The path of the page, such as `'/locks'`; the application's global prefix comes before it.
   */
  readonly path: string;

  /**
   * Guards that decide who may see and use the board: classes, which Nest instantiates, or instances. Guards of the
   * whole application run before these guards.
   * @defaultValue none; `public` must then be `true`
   */
  readonly guards?: readonly (Type<CanActivate> | CanActivate)[];

  /**
   * `true` if everybody who reaches the application may see all keys and owners.
   * @defaultValue false
   */
  readonly public?: boolean;

  /**
   * `true` if everybody whom the guards admit may release the locks of any holder by force.
   * @defaultValue false
   */
  readonly allowForceRelease?: boolean;

  /**
   * Returns the name of the user who sent a request to release a lock by force. The event
   * `nestjs-redlock:force-release` contains that name. The argument is the request of Express or Fastify.
   * @defaultValue the event contains no name
   */
  readonly actor?: (request: never) => string | undefined | Promise<string | undefined>;

  /** The `name` of the `RedlockModule` whose locks are shown. */
  readonly instance?: string;

  /**
   * Modules that provide what the guards inject.
   * @defaultValue none
   */
  readonly imports?: ModuleMetadata['imports'];
}

const NAMES = ['path', 'guards', 'public', 'allowForceRelease', 'actor', 'instance', 'imports'];

/** @throws TypeError naming the wrong option; Error unless exactly one of `guards` and `public` is given */
export function checkBoardOptions(options: RedlockBoardOptions): void {
  checkOptionNames('RedlockBoardModule.forRoot', options, NAMES);
  const { path, guards = [], public: isPublic, allowForceRelease, actor, instance } = options;
  if (typeof path !== 'string' || !/^\/?[^/?#]/.test(path))
    throw badOption('path', 'a path that is not empty, such as `/locks`', path);
  const isGuard = (guard: unknown): boolean =>
    typeof guard === 'function' ||
    (typeof guard === 'object' && guard !== null && typeof (guard as CanActivate).canActivate === 'function');
  if (!Array.isArray(guards) || !guards.every(isGuard))
    throw badOption('guards', 'an array of guards, each a class or an object with `canActivate`', guards);
  if (isPublic !== undefined) checkBoolean('public', isPublic);
  if (allowForceRelease !== undefined) checkBoolean('allowForceRelease', allowForceRelease);
  if (actor !== undefined && typeof actor !== 'function')
    throw badOption('actor', 'a function of the request', actor);
  if (instance !== undefined && (typeof instance !== 'string' || instance === ''))
    throw badOption('instance', 'a string that is not empty', instance);
  if (guards.length === 0 && isPublic !== true) {
    throw new Error(
      'RedlockBoardModule has no `guards`, so everybody who reaches this application would see its locks. Write ' +
        '`guards: [AdminGuard]` with a guard of yours, or `public: true` if everybody may see the locks.',
    );
  }
  if (guards.length > 0 && isPublic === true) {
    throw new Error(
      'RedlockBoardModule has both `guards` and `public: true`, which contradict each other. Leave out one of the two.',
    );
  }
}
