/** A server that instances keep their locks in, and that the lab can kill and start again. */
export interface LockServer {
  readonly name: string;
  readonly host: string;
  readonly port: number;
  readonly url: string;
  readonly running: boolean;
  /** Whether it comes back from a crash without the locks that it had. */
  readonly forgets: boolean;
  start(): Promise<void>;
  /** As in a crash. */
  kill(): Promise<void>;
}
