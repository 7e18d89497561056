import { Controller, Get, Injectable, Param, UseGuards, type CanActivate } from '@nestjs/common';
import { currentLock, WithLock } from 'nestjs-redlock';

@Injectable()
class DenyAll implements CanActivate {
  canActivate(): boolean {
    return false;
  }
}

// The lock in the middle: a decorator that lost the method's metadata would lose the route or the guard.
@Controller('reports')
export class ReportsController {
  @Get('open/:name')
  @WithLock('report:open')
  async open(@Param('name') name: string): Promise<{ name: string; locked: boolean }> {
    return { name, locked: currentLock()?.isHeld() ?? false };
  }

  @Get('secret')
  @WithLock('report:secret')
  @UseGuards(DenyAll)
  async secret(): Promise<string> {
    return 'the secret';
  }
}
