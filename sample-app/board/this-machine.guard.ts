import { type CanActivate, type ExecutionContext, Injectable } from '@nestjs/common';
import type { Request } from 'express';

const LOOPBACK = /^(127\.|::1$|::ffff:127\.)/;
const NAMES = /^(127\.0\.0\.1|localhost|\[::1\])(:\d+)?$/;

/**
 * Admits requests from this machine, which is enough for a demo. The guard also checks the host name of the request: a
 * page of another site can make its host name resolve to this machine (DNS rebinding). A real application checks who
 * its users are.
 */
@Injectable()
export class ThisMachineGuard implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    const { headers, socket } = context.switchToHttp().getRequest<Request>();
    return LOOPBACK.test(socket.remoteAddress ?? '') && NAMES.test(headers.host ?? '');
  }
}
