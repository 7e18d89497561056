import type { Socket } from 'node:net';

/**
 * Resets a connection (RST). A socket that is just sending its end is closed instead: Node cannot reset it (EINVAL), and
 * never closes it afterwards, so that the process waits for it for ever when it ends.
 */
export function resetSocket(socket: Socket): void {
  const isSendingItsEnd = socket.writableEnded && socket.writableLength === 0 && !socket.writableFinished;
  if (isSendingItsEnd) socket.destroy();
  else socket.resetAndDestroy();
}
