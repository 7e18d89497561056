import type { LockStore } from '../sample-app/config/environment.js';
import { locateBinaries } from '../sample-app/demo/embedded-postgres.js';
import { etcdOnPath, HOW_TO_GET_ETCD } from '../sample-app/demo/path-etcd.js';
import { HOW_TO_GET_MARIADB, mariadbOnPath } from '../sample-app/demo/path-mariadb.js';
import { hasZooKeeper, HOW_TO_GET_ZOOKEEPER } from '../sample-app/demo/path-zookeeper.js';
import type { LockPlan } from './lock-plan.js';

/** A store of locks for the playground. */
export interface StoreChoice {
  readonly name: string;
  readonly title: string;
  /** Description of its behaviour for the page. */
  readonly note: string;
  readonly plan: LockPlan & { readonly ttl?: number };
  /** Reason why the store is missing on this machine, and how to install it. */
  readonly missing?: string | undefined;
  /** True for the store that the page selects at first. */
  readonly preselected: boolean;
}

/** Least ttl of etcd and its step, in milliseconds. */
const ETCD_TTL = { least: 2_000, step: 1_000 };

const FORGETS = 'A Redis that is killed comes back without its data.';
const REMEMBERS = 'After a kill and a restart, it still has its locks.';

const CHOICES: readonly Omit<StoreChoice, 'preselected'>[] = [
  {
    name: 'redis-5',
    title: 'Redis, five masters',
    note: `Three of them must agree. ${FORGETS}`,
    plan: { store: 'redis', nodes: 5 },
  },
  {
    name: 'redis-3',
    title: 'Redis, three masters',
    note: `Two of them must agree. ${FORGETS}`,
    plan: { store: 'redis', nodes: 3 },
  },
  { name: 'redis-1', title: 'Redis, one', note: FORGETS, plan: { store: 'redis', nodes: 1 } },
  {
    name: 'postgres',
    title: 'PostgreSQL',
    note: `A PostgreSQL for the locks alone. ${REMEMBERS}`,
    plan: { store: 'postgres', nodes: 1 },
  },
  {
    name: 'mysql',
    title: 'MariaDB',
    note: `A MariaDB for the locks alone. ${REMEMBERS}`,
    plan: { store: 'mysql', nodes: 1 },
  },
  {
    name: 'etcd',
    title: 'etcd',
    note: `${REMEMBERS} A ttl is whole seconds, at least ${ETCD_TTL.least / 1_000}.`,
    plan: { store: 'etcd', nodes: 1, ttl: ETCD_TTL.least },
  },
  {
    name: 'zookeeper',
    title: 'ZooKeeper',
    note: `A ZooKeeper for the locks alone. ${REMEMBERS}`,
    plan: { store: 'zookeeper', nodes: 1 },
  },
];

/**
 * Finds the stores of this machine.
 *
 * @param preferred - store that the page selects first
 * @throws Error that says how to install the preferred store, if it is missing
 */
export async function findStores(preferred: LockStore = 'redis'): Promise<StoreChoice[]> {
  const missing: Record<LockStore, string | undefined> = {
    redis: undefined,
    postgres: await locateBinaries().then(
      () => undefined,
      () => 'There is no embedded PostgreSQL for this machine',
    ),
    mysql: (await mariadbOnPath()) === undefined ? HOW_TO_GET_MARIADB : undefined,
    etcd: (await etcdOnPath()) === undefined ? HOW_TO_GET_ETCD : undefined,
    zookeeper: (await hasZooKeeper()) ? undefined : HOW_TO_GET_ZOOKEEPER,
  };
  const preselected = CHOICES.find(({ plan }) => plan.store === preferred);
  if (missing[preferred] !== undefined) throw new Error(`${missing[preferred]}.`);
  return CHOICES.map((choice) => ({
    ...choice,
    missing: missing[choice.plan.store],
    preselected: choice === preselected,
  }));
}

/** Says why this store cannot keep a lock with this ttl; `undefined` if it can. */
export function problemOfTtl(store: LockStore, ttl: number): string | undefined {
  const { least, step } = ETCD_TTL;
  if (store !== 'etcd' || (ttl >= least && ttl % step === 0)) return undefined;
  return `Expected ttl to be a multiple of ${step} ms, at least ${least}, for etcd, got ${ttl}: its leases last whole seconds`;
}
