import { Controller, Get, Injectable, Param, UseGuards, type CanActivate } from '@nestjs/common';
import { currentLock, WithLock } from 'nestjs-redlock';

@Injectable()
class DenyAll implements CanActivate {
  canActivate(): boolean {
    return false;
  }
}

// `@WithLock` stands between other decorators. If it lost the metadata of the method, the route or the guard would be lost.
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
