import { NotAsDescribedError, Recorder } from './recorder.js';
import { StopList } from '../sample-app/demo/stop-list.js';
import { runFlashSale } from './flash-sale.js';
import { deviations } from './judge.js';
import type { LabEvent, RunRecord } from './lab-event.js';
import { namesOfServers } from './lock-plan.js';
import type { Part, Scenario } from './scenarios.js';
import { type LabServices, Stage, type StagePlan } from './stage.js';
import type { StoreChoice } from './store-choices.js';

/** Receives the events of the runs. */
export interface LabWatcher {
  runStarted(record: RunRecord): void;
  event(run: number, event: LabEvent): void;
  runEnded(record: RunRecord): void;
}

/** Runs scenarios, one run at a time, and keeps the records. */
export class Lab {
  readonly records: RunRecord[] = [];
  readonly watchers = new Set<LabWatcher>();
  /** Stage of the current run. */
  stage: Stage | undefined;
  private recorder: Recorder | undefined;
  private stopping = false;
  busy = false;

  /** Services of the lab, after their start. */
  services: LabServices | undefined;

  /** @param stores - stores for the playground */
  constructor(
    private readonly stops: StopList,
    readonly stores: readonly StoreChoice[],
  ) {}

  /**
   * Runs a scenario.
   *
   * @param settings - settings that replace those of the scenario
   * @returns the records of its runs
   */
  async run(scenario: Scenario, settings: Partial<StagePlan> = {}): Promise<RunRecord[]> {
    if (this.busy) throw new Error('a scenario is already running');
    this.busy = true;
    this.stopping = false;
    try {
      const records: RunRecord[] = [];
      for (const part of scenario.parts) {
        if (this.stopping) break;
        const changed = 'plan' in part ? { ...part, plan: { ...part.plan, ...settings } } : part;
        records.push(await this.play(scenario, changed));
      }
      return records;
    } finally {
      this.busy = false;
    }
  }

  /** Ends the current scenario. */
  stop(): void {
    this.stopping = true;
    this.recorder?.end();
  }

  private async play({ number }: Scenario, part: Part): Promise<RunRecord> {
    const record = newRecord(this.records.length + 1, number, part);
    this.records.push(record);
    for (const watcher of this.watchers) watcher.runStarted(record);
    const { services } = this;
    if (!services) throw new Error('the servers have not started yet');
    if (part.needsRealRedis && services.redis.kind !== 'redis-server') {
      record.notRun = 'needs redis-server on the PATH: js-redis-server has no replicas';
      this.end(record);
    } else {
      const own = new StopList();
      await this.stops.add(() => own.stopAll());
      try {
        await this.perform(part, record, services, own);
      } catch (error) {
        record.deviations = [(error as Error).message];
        throw error;
      } finally {
        this.stage = undefined;
        await own.stopAll();
        this.end(record);
      }
    }
    return record;
  }

  private end(record: RunRecord): void {
    record.endedAt = Date.now();
    for (const watcher of this.watchers) watcher.runEnded(record);
  }

  private async perform(
    part: Part,
    record: RunRecord,
    services: LabServices,
    stops: StopList,
  ): Promise<void> {
    const recorder = new Recorder(record, (event) => {
      for (const watcher of this.watchers) watcher.event(record.id, event);
    });
    this.recorder = recorder;
    const missing: string[] = [];
    if ('sale' in part) {
      record.outcome = await runFlashSale(part.sale, services.queue, recorder, stops);
    } else {
      const stage = await Stage.open(services, part.plan, recorder, stops);
      this.stage = stage;
      missing.push(...(await outcomeOf(part.situation(stage))));
      record.outcome = await stage.finish();
    }
    record.happened = part.tell(record.outcome, record.events);
    record.deviations = [...missing, ...deviations(part.expected, record.outcome)];
  }
}

function newRecord(id: number, scenario: number, part: Part): RunRecord {
  const common = { id, scenario, title: part.title, startedAt: Date.now(), events: [] };
  if ('sale' in part) {
    const { way, shops } = part.sale;
    const strategy = ({ unguarded: 'none', lock: 'with-lock', script: 'script' } as const)[way];
    return {
      ...common,
      strategy,
      ttl: 0,
      work: 0,
      instances: numbered('shop', shops),
      store: 'redis',
      nodes: [],
    };
  }
  const { strategy, ttl, work, instances, rule } = part.plan;
  return {
    ...common,
    strategy,
    ttl,
    work,
    instances: numbered('instance', instances),
    store: part.plan.store,
    nodes: namesOfServers(part.plan),
    rule,
  };
}

function numbered(name: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => `${name}-${index + 1}`);
}

/**
 * Waits until a situation has ended.
 *
 * @returns the differences from the description; an empty list if there are none. A difference is a result of the run,
 * not an error of the lab
 */
async function outcomeOf(situation: Promise<void>): Promise<string[]> {
  try {
    await situation;
    return [];
  } catch (error) {
    if (error instanceof NotAsDescribedError) return [error.message];
    throw error;
  }
}
