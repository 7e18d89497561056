import { type CanActivate, type ExecutionContext, Injectable } from '@nestjs/common';
import type { Request } from 'express';

const LOOPBACK = /^(127\.|::1$|::ffff:127\.)/;
const NAMES = /^(127\.0\.0\.1|localhost|\[::1\])(:\d+)?$/;

/**
 * Lets in who sits at this machine, which will do for a demo. By the name that was asked for as well: one of another page can be
 * made to resolve to this machine (DNS rebinding). An application asks for its users.
 */
@Injectable()
export class ThisMachineGuard implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    const { headers, socket } = context.switchToHttp().getRequest<Request>();
    return LOOPBACK.test(socket.remoteAddress ?? '') && NAMES.test(headers.host ?? '');
  }
}
