/** The nodes of a command, and the prefix of the keys on these nodes. */
export interface Target {
  /** URLs; they may hold passwords. */
  readonly nodes: readonly string[];
  /** Source of the URLs, for messages. */
  readonly source: '--node' | 'REDLOCK_NODES';
  readonly keyPrefix: string;
  readonly ca?: string | undefined;
  readonly cert?: string | undefined;
  readonly key?: string | undefined;
  readonly insecure: boolean;
  /** Schema of the tables in PostgreSQL. */
  readonly schema?: string | undefined;
  /** Beginning of the names of the tables in MySQL. */
  readonly tablePrefix?: string | undefined;
}

/** Schemes of the URLs of a MySQL or MariaDB. */
export const MYSQL_SCHEME = /^(mysql|mariadb):\/\//;
