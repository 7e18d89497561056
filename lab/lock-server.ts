/** A server of locks, which the lab can kill and start again. */
export interface LockServer {
  readonly name: string;
  readonly host: string;
  readonly port: number;
  readonly url: string;
  readonly running: boolean;
  /** True if the server loses its locks in a crash. */
  readonly forgets: boolean;
  start(): Promise<void>;
  /** Ends the server as in a crash. */
  kill(): Promise<void>;
}
