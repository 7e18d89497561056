import { hostname } from 'node:os';
import { z } from 'zod';

const databaseUrl = z.url({
  protocol: /^postgres(ql)?$/,
  error: 'must be like postgres://user:password@host:5432/database',
});

const redisUrl = z.url({ protocol: /^rediss?$/, error: 'must be like redis://host:6379' });

const redisUrls = z
  .string({ error: 'must be like redis://host:6379, or several of them separated by commas' })
  .transform((urls) => urls.split(',').map((url) => url.trim()))
  .pipe(z.tuple([redisUrl], redisUrl));

const etcdUrls = z
  .string({ error: 'must be like http://host:2379, or several of them separated by commas' })
  .transform((urls) => urls.split(',').map((url) => url.trim()))
  .pipe(z.array(z.url({ protocol: /^https?$/, error: 'must be like http://host:2379' })));

const mysqlUrl = z.url({
  protocol: /^(mysql|mariadb)$/,
  error: 'must be like mysql://user:password@host:3306/database',
});

/** Stores for locks. */
export const LOCK_STORES = ['redis', 'postgres', 'mysql', 'etcd', 'zookeeper'] as const;
export type LockStore = (typeof LOCK_STORES)[number];

export function isLockStore(name: string): name is LockStore {
  return (LOCK_STORES as readonly string[]).includes(name);
}

const environmentSchema = z.object({
  /** Address of the HTTP interface. */
  HOST: z.string().default('127.0.0.1'),
  PORT: z.coerce.number().int().min(0).max(65_535).default(3000),

  DATABASE_URL: databaseUrl,

  /** URLs separated by commas. All these nodes vote on locks; the first one also has the queue. */
  REDIS_URLS: redisUrls,

  /** Members of the etcd for locks, separated by commas. */
  ETCD_URLS: etcdUrls.default(['http://127.0.0.1:2379']),

  /** MySQL or MariaDB for locks. */
  MYSQL_URL: mysqlUrl.default('mysql://root@127.0.0.1:3306/locks'),

  /** Servers of the ZooKeeper for locks, separated by commas, with or without a path behind the last one. */
  ZOOKEEPER_SERVERS: z.string().min(1).default('127.0.0.1:2181'),

  /** Store of the locks. The queue is always in Redis. */
  LOCK_STORE: z.enum(LOCK_STORES).default('redis'),

  /** PostgreSQL for locks, if the locks are not in the database of the tasks. */
  LOCK_DATABASE_URL: databaseUrl.optional(),

  /** Schema of the locks in that PostgreSQL. */
  LOCK_SCHEMA: z.string().default('redlock'),

  /** Nodes that vote on locks, if they differ from the nodes of `REDIS_URLS`. */
  LOCK_REDIS_URLS: redisUrls.optional(),

  /** Prefix of all keys in Redis, so that several deployments can share a Redis. */
  KEY_PREFIX: z.string().min(1).default('batch'),

  /** Name of this instance in statistics and as the owner of locks. Each instance needs a different name. */
  INSTANCE: z
    .string()
    .min(1)
    .default(() => `${hostname()}:${process.pid}`),

  /** `unlocked` shows what happens without a lock. */
  DISPATCHER: z.enum(['locked', 'unlocked']).default('locked'),

  /** Milliseconds that Redis keeps a lock without a renewal or a release. */
  LOCK_TTL: z.coerce.number().int().min(100).default(5_000),

  /**
   * `LOCK_NODE_TIMEOUT`: milliseconds that a lock node may take to answer. `LOCK_RESTART_GUARD`: milliseconds for which
   * a restarted node may not vote.
   */
  LOCK_NODE_TIMEOUT: z.coerce.number().int().min(1).optional(),
  LOCK_RESTART_GUARD: z.coerce.number().int().min(1).optional(),

  /** Milliseconds that a dispatcher works on tasks after it has read them, and before it marks and pushes them. */
  DISPATCH_WORK: z.coerce.number().int().min(0).default(0),

  /** Largest number of tasks in one run of the dispatcher. */
  DISPATCH_BATCH: z.coerce.number().int().min(1).max(10_000).default(100),

  /** Number of failed attempts after which a task is dead. */
  MAX_ATTEMPTS: z.coerce.number().int().min(1).default(4),

  /**
   * Milliseconds after which an enqueued task that no consumer has taken counts as lost. The time must be longer than
   * tasks wait in the queue. Otherwise tasks are pushed again while they still wait.
   */
  ENQUEUED_TIMEOUT: z.coerce.number().int().min(1_000).default(60_000),

  /** Milliseconds without a heartbeat after which a task in processing counts as abandoned. */
  PROCESSING_TIMEOUT: z.coerce.number().int().min(1_000).default(10_000),
});

/** The configuration of one instance. */
export type Environment = z.output<typeof environmentSchema>;

/** Injection token of the {@link Environment}. */
export const ENVIRONMENT = Symbol('ENVIRONMENT');

/**
 * Reads the configuration.
 *
 * @throws Error that names each variable that is missing or wrong
 */
export function readEnvironment(variables: NodeJS.ProcessEnv): Environment {
  const result = environmentSchema.safeParse(variables);
  if (result.success) return result.data;
  const lines = result.error.issues.map(({ path, message }) => `  ${String(path[0])}: ${message}`);
  throw new Error(`These environment variables are missing or wrong:\n${lines.join('\n')}`);
}
