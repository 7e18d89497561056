import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import type { INestApplication, ModuleMetadata } from '@nestjs/common';
import { RedlockBoardModule, type RedlockBoardOptions } from '../../lib/board/index.js';
import { LockService, type RedlockModuleOptions } from '../../lib/index.js';
import { type Asset, ASSETS } from '../../lib/board/live/assets.js';
import { startApp, type StartOptions } from '../support/nest-app.js';

export interface BoardApp {
  readonly app: INestApplication;
  readonly locks: LockService;
  /** URL of the page. */
  readonly url: string;
}

export interface BoardAppOptions extends StartOptions {
  readonly locks?: RedlockModuleOptions;
  readonly metadata?: ModuleMetadata;
}

/** Starts an application with a board, and lets it listen. */
export async function startBoard(
  board: Partial<RedlockBoardOptions> = { public: true },
  { locks, metadata = {}, ...start }: BoardAppOptions = {},
): Promise<BoardApp> {
  const imports = [RedlockBoardModule.forRoot({ path: '/locks', ...board }), ...(metadata.imports ?? [])];
  const app = await startApp({ ...metadata, imports }, locks, start);
  await app.listen(0, '127.0.0.1');
  const { port } = app.getHttpServer().address() as { port: number };
  return { app, locks: app.get(LockService), url: `http://127.0.0.1:${port}/locks` };
}

/**
 * Makes the sources of the library serve the built files of the page. The sources themselves contain no built files.
 */
export async function usePageFiles(): Promise<void> {
  const text = await readFile(resolve('dist/lib/board/live/assets.js'), 'utf8');
  const assets = JSON.parse(text.slice(text.indexOf('{'), text.lastIndexOf('}') + 1)) as Record<
    string,
    Asset
  >;
  Object.assign(ASSETS, assets);
}
