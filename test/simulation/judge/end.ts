import type { Scene } from '../scene.js';

/** Checks what must hold when every process has closed. */
export function checkEnd(scene: Scene): void {
  const { judge, everyApp } = scene;
  judge.isOver = true;
  for (const {
    process,
    closedAt,
    clients,
    name,
    scene: { plan },
  } of everyApp) {
    if (process.isDead) continue;
    if (closedAt === undefined) {
      judge.find('close-hangs', `${name} has not closed`);
      continue;
    }
    const { timersLeft } = process;
    if (timersLeft.length > 0) {
      const alive = timersLeft.filter((timer) => timer.hasRef()).length;
      judge.find(
        'left-behind',
        `${name} left ${timersLeft.length} timers, of which ${alive} keep the process alive`,
      );
    }
    const listeners = plan.passedIn ? clients.flatMap((client) => client.eventNames()) : [];
    if (listeners.length > 0) judge.find('left-behind', `${name} left listeners of ${listeners.join(', ')}`);
  }
}
