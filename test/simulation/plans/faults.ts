import type { Random } from '../world/random.js';

/** Milliseconds for which the library does not notice a forgotten connection at most: until the next renewal, and its silence. */
export const UNNOTICED_MS = 20_000;

/** `undefined` for every process or every node. */
type Which = number | undefined;

interface Shape {
  /** The node crashes, and starts again without the writes of the last `lost` milliseconds; -1 for all. */
  crash: { node: number; down: number; lost: number };
  /** The node executes nothing for a while. */
  hang: { node: number; duration: number };
  slow: { node: number; duration: number; by: number };
  refuse: { node: number; duration: number; how: 'oom' | 'readonly' | 'loading' | 'misconf' };
  /** The node forgets all data. */
  flush: { node: number };
  /** The node forgets the scripts. */
  scriptFlush: { node: number };
  /** A replica that lacks the latest writes takes over. */
  promote: { node: number; lag: number };
  stepNode: { node: number; by: number };
  /**
   * The node becomes a replica of the node `of`, whose data it gets, and a master again. Its clients stay connected. -1 for
   * another server, which is empty.
   */
  replicaOf: { node: number; of: number; duration: number };
  /** Connections end; bytes under way are lost, arrive, or arrive `late` milliseconds later. */
  cut: { process: Which; node: Which; bytes: 'lost' | 'arrive' | 'late'; late: number };
  /** A middle box forgets the connections, and tells nobody. */
  forget: { process: Which; node: Which };
  block: { process: Which; node: Which; direction: 'up' | 'down' | 'both'; duration: number };
  delay: { process: Which; node: Which; duration: number; by: number; loss: number };
  /** The event loop is blocked, or the process is stopped. */
  pause: { process: number; duration: number };
  /** The event loop of the process, or of the thread that renews its locks, is blocked; the other one runs. */
  stall: { process: number; ofThread: boolean; duration: number };
  /** The machine of the process sleeps: its monotonic clock stops. */
  suspend: { process: number; duration: number };
  /** The virtual machine of the process is paused: both clocks stop. */
  freeze: { process: number; duration: number };
  step: { process: number; by: number };
  kill: { process: number; again: number };
  /** The application closes the module, and starts again. */
  restart: { process: number; again: number };
}

export type FaultKind = keyof Shape;
/** The requests whose moments faults wait for: most faults do harm only while a request is under way. */
export const MOMENTS = ['acquire', 'acquire', 'extend', 'extend', 'release', 'raise'] as const;

/**
 * `'heal'`: the request that stores a held lock on a further node (S26). `'exchange'`: the one with which a lock goes to
 * another process.
 */
export type Moment = (typeof MOMENTS)[number] | 'heal' | 'exchange';

/** A fault. With `on` it waits from `at` on until a process sends such a request. */
export type FaultEvent<Kind extends FaultKind = FaultKind> = {
  [K in Kind]: { readonly kind: K; readonly at: number; readonly on?: Moment } & Readonly<Shape[K]>;
}[Kind];

/** The numbers of a world that faults depend on. */
export interface Scale {
  readonly nodes: number;
  readonly processes: number;
  /** `true` if a node may lose data: with the restart guard it does not vote then. */
  readonly mayLose: boolean;
}

type Make<Kind extends FaultKind> = (random: Random, scale: Scale) => Shape[Kind];

const node = (random: Random, { nodes }: Scale): number => random.whole(0, nodes - 1);
const process = (random: Random, { processes }: Scale): number => random.whole(0, processes - 1);
const link = (random: Random, scale: Scale): { process: Which; node: Which } => ({
  process: random.chance(0.4) ? undefined : process(random, scale),
  node: random.chance(0.3) ? undefined : node(random, scale),
});
const rounded = (ms: number): number => Math.round(ms);

/** Makes the details of each kind of fault. */
export const FAULTS: { readonly [Kind in FaultKind]: Make<Kind> } = {
  crash: (random, scale) => ({
    node: node(random, scale),
    down: rounded(random.scaled(20, 8_000)),
    lost: scale.mayLose ? random.pick([0, 0, 1_000, 20_000, -1]) : 0,
  }),
  hang: (random, scale) => ({ node: node(random, scale), duration: rounded(random.scaled(50, 60_000)) }),
  slow: (random, scale) => ({
    node: node(random, scale),
    duration: rounded(random.scaled(500, 8_000)),
    by: rounded(random.scaled(5, 800)),
  }),
  refuse: (random, scale) => ({
    node: node(random, scale),
    duration: rounded(random.scaled(500, 8_000)),
    how: random.pick(['oom', 'readonly', 'loading', 'misconf'] as const),
  }),
  flush: (random, scale) => ({ node: node(random, scale) }),
  scriptFlush: (random, scale) => ({ node: node(random, scale) }),
  promote: (random, scale) => ({ node: node(random, scale), lag: rounded(random.scaled(5, 3_000)) }),
  stepNode: (random, scale) => ({
    node: node(random, scale),
    by: rounded(random.pick([-1, 1]) * random.scaled(100, 20_000)),
  }),
  replicaOf: (random, scale) => {
    const at = node(random, scale);
    const of =
      random.chance(0.3) || scale.nodes === 1 ? -1 : (at + random.whole(1, scale.nodes - 1)) % scale.nodes;
    return { node: at, of, duration: rounded(random.scaled(50, 5_000)) };
  },
  cut: (random, scale) => ({
    ...link(random, scale),
    bytes: random.pick(['lost', 'arrive', 'late', 'late'] as const),
    // Bytes that beat the deadline of an acquisition do more harm than later ones.
    late: rounded(random.chance(0.5) ? random.scaled(10, 1_500) : random.scaled(300, 30_000)),
  }),
  forget: (random, scale) => link(random, scale),
  block: (random, scale) => ({
    process: random.chance(0.4) ? undefined : process(random, scale),
    node: random.chance(0.4) ? undefined : node(random, scale),
    direction: random.pick(['up', 'down', 'both'] as const),
    duration: rounded(random.scaled(50, 12_000)),
  }),
  delay: (random, scale) => ({
    ...link(random, scale),
    duration: rounded(random.scaled(500, 8_000)),
    by: rounded(random.scaled(5, 1_500)),
    loss: random.chance(0.3) ? 0.2 : 0,
  }),
  pause: (random, scale) => ({
    process: process(random, scale),
    duration: rounded(random.scaled(20, 15_000)),
  }),
  stall: (random, scale) => ({
    process: process(random, scale),
    ofThread: random.chance(0.5),
    duration: rounded(random.scaled(20, 20_000)),
  }),
  suspend: (random, scale) => ({
    process: process(random, scale),
    duration: rounded(random.scaled(500, 20_000)),
  }),
  freeze: (random, scale) => ({
    process: process(random, scale),
    duration: rounded(random.scaled(500, 20_000)),
  }),
  step: (random, scale) => ({
    process: process(random, scale),
    by: rounded(random.pick([-1, 1]) * random.scaled(10, 60_000)),
  }),
  kill: (random, scale) => ({ process: process(random, scale), again: rounded(random.scaled(100, 4_000)) }),
  restart: (random, scale) => ({
    process: process(random, scale),
    again: rounded(random.scaled(100, 4_000)),
  }),
};

/** One line for a person. */
export function described(event: FaultEvent): string {
  const { kind, at, ...details } = event;
  const said = Object.entries(details).map(([name, value]) => `${name} ${value ?? 'all'}`);
  return `${(at / 1_000).toFixed(2)} s  ${kind}  ${said.join(', ')}`;
}
