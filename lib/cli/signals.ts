const IS_WINDOWS = process.platform === 'win32';

/** Signals that ask a process to end. */
const ENDING: readonly NodeJS.Signals[] = IS_WINDOWS
  ? ['SIGINT', 'SIGBREAK', 'SIGHUP']
  : ['SIGHUP', 'SIGINT', 'SIGQUIT', 'SIGTERM'];

/** Further signals that a command may understand. */
const OTHERS: readonly NodeJS.Signals[] = IS_WINDOWS ? [] : ['SIGUSR1', 'SIGUSR2', 'SIGWINCH', 'SIGCONT'];

/** The signal of Ctrl-Z. It is heard and has no effect: a stopped process could not renew its lock. */
const STOPPING: readonly NodeJS.Signals[] = IS_WINDOWS ? [] : ['SIGTSTP'];

const HEARD = [...ENDING, ...OTHERS, ...STOPPING];

/**
 * Signals whose default action writes a core dump. This process does not end itself by one of them, because the core
 * dump would be of Node, not of the command.
 */
const DUMPING: ReadonlySet<NodeJS.Signals> = new Set([
  'SIGQUIT',
  'SIGILL',
  'SIGTRAP',
  'SIGABRT',
  'SIGBUS',
  'SIGFPE',
  'SIGSEGV',
  'SIGXCPU',
  'SIGXFSZ',
  'SIGSYS',
]);

/**
 * The signals that this process gets while it waits for a lock or holds one. They do not end the process by themselves,
 * because the lock must be released first, and only after the command under it has ended.
 */
export class Signals {
  readonly #ending = new AbortController();
  #forward: ((name: NodeJS.Signals) => void) | undefined;

  readonly #heard = (name: NodeJS.Signals): void => {
    if (ENDING.includes(name)) this.#ending.abort(new InterruptedError(name));
    if (!STOPPING.includes(name)) this.#forward?.(name);
  };

  /** Begins to listen. */
  constructor() {
    for (const name of HEARD) process.on(name, this.#heard);
  }

  /** Aborts at the first signal that asks this process to end, with an {@link InterruptedError}. */
  get ending(): AbortSignal {
    return this.#ending.signal;
  }

  /** Calls `forward` with each signal that comes from now on, and with the one that came while the command started. */
  forwardTo(forward: (name: NodeJS.Signals) => void): void {
    this.#forward = forward;
    const { reason } = this.ending as { readonly reason: unknown };
    if (reason instanceof InterruptedError) forward(reason.by);
  }

  /** Stops listening. */
  stop(): void {
    for (const name of HEARD) process.off(name, this.#heard);
  }
}

/** A signal asked this process to end before it had the lock. */
export class InterruptedError extends Error {
  override readonly name = 'InterruptedError';

  constructor(readonly by: NodeJS.Signals) {
    super(`interrupted by ${by}`);
  }
}

/**
 * Ends this process by a signal, as the command was ended, so that a shell that waits for it sees the same. Returns
 * without effect where that is impossible: for a core dump, and for process 1 of a container.
 */
export function endBy(name: NodeJS.Signals): void {
  if (!IS_WINDOWS && !DUMPING.has(name)) process.kill(process.pid, name);
}
