/** A lock that `nestjs-redlock hold` keeps, so that a job does not run. */
export interface Hold {
  /** The user, host and process that hold the lock. */
  readonly by: string;
  /** The planned end, without milliseconds, such as 2026-11-27T20:47:27Z. */
  readonly until: string;
  readonly reason: string;
}

/** Makes the owner's name, which every store keeps with the lock and every version of the library shows. */
export function nameOfHold({ by, until, reason }: Hold): string {
  return `${by} until ${until}: ${reason}`;
}

/** Reads the name of an owner; `undefined` if it is not that of such a lock. */
export function holdIn(owner: string): Hold | undefined {
  const [, by, until, reason] = /^(.+?) until (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ): (.+)$/s.exec(owner) ?? [];
  if (by === undefined || until === undefined || reason === undefined) return undefined;
  return { by, until, reason };
}
