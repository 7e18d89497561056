/** A connection that a store opens to its database, and uses alone. */
export interface DatabaseClient {
  /** Connects. Rejects when that fails, and when {@link end} is called meanwhile. */
  connect(): Promise<void>;
  /** Runs a statement whose result is one text. Resolves to that text; `undefined` for null. */
  run(text: string, values?: readonly unknown[]): Promise<string | undefined>;
  /** Calls `listener` when the connection is lost, also during {@link connect}. */
  onLost(listener: (error: Error) => void): void;
  /** Closes the connection within a time limit. Never rejects. */
  end(): Promise<void>;
}

/** The differences between databases, as far as they concern connections. */
export interface DatabaseDriver<Client extends DatabaseClient> {
  /** Makes a client without connecting it. */
  newClient(): Client;
  /** A statement without effect. */
  readonly test: string;
  /** `true` if a connection with this error must be replaced, because a new one may lead to another server. */
  replaces(error: Error): boolean;
  /** Adds advice to the error of a lost connection, if there is advice for it. */
  withAdvice(error: Error): Error;
}
