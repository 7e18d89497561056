import {
  Body,
  Controller,
  Get,
  Inject,
  Param,
  Post,
  Req,
  Res,
  type Type,
  UseGuards,
  VERSION_NEUTRAL,
} from '@nestjs/common';
import { Board, type PlatformRequest, type PlatformResponse } from './board.js';
import type { RedlockBoardOptions } from './board.options.js';

/** Makes a controller class for the path and the guards of the options: Nest reads both from decorators of a class. */
export function boardControllerFor({ path, guards = [] }: RedlockBoardOptions): Type {
  // The page has no version, so its path stays the same when the application versions its routes.
  @Controller({ path, version: VERSION_NEUTRAL })
  @UseGuards(...guards)
  class RedlockBoardController {
    constructor(@Inject(Board) private readonly board: Board) {}

    @Get()
    page(@Req() request: PlatformRequest, @Res() response: PlatformResponse): void {
      this.board.get(request, response, '');
    }

    @Get(':file')
    file(
      @Req() request: PlatformRequest,
      @Res() response: PlatformResponse,
      @Param('file') file: string,
    ): void {
      this.board.get(request, response, file);
    }

    @Post('release')
    release(
      @Req() request: PlatformRequest,
      @Res() response: PlatformResponse,
      @Body() body: unknown,
    ): Promise<void> {
      return this.board.release(request, response, body);
    }
  }
  return RedlockBoardController;
}
