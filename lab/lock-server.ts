/** A server that instances keep their locks in, and that the lab can kill and start again. */
export interface LockServer {
  readonly name: string;
  readonly host: string;
  readonly port: number;
  readonly url: string;
  readonly running: boolean;
  /** True if it loses its locks in a crash. */
  readonly forgets: boolean;
  start(): Promise<void>;
  /** As in a crash. */
  kill(): Promise<void>;
}
