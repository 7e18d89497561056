import type { Stats } from '../stats/stats.controller.js';
import type { NewTask } from '../tasks/create-tasks.schema.js';
import { ServerProcess } from './server-process.js';
import type { StopList } from './stop-list.js';

const REQUEST_TIMEOUT_MS = 10_000;

/** An instance of the sample in its own process, reached over HTTP. */
export class Instance {
  private constructor(
    readonly name: string,
    readonly process: ServerProcess,
    readonly url: string,
  ) {}

  /**
   * Starts an instance.
   *
   * @param main - path of the compiled sample
   * @param environment - configuration of the instance
   */
  static async start(
    main: string,
    environment: { INSTANCE: string } & Record<string, string>,
    stops: StopList,
  ): Promise<Instance> {
    const name = environment.INSTANCE;
    const server = new ServerProcess(name, process.execPath, [main], {
      env: { ...process.env, ...environment, HOST: '127.0.0.1', PORT: '0', NO_COLOR: '1' },
    });
    await stops.add(() => server.stop());
    const url = await server.whenReady(() => / listens on (\S+)/.exec(server.output)?.[1]);
    return new Instance(name, server, url);
  }

  /**
   * Sends tasks to the instance.
   *
   * @throws Error with the answer of the instance, unless the answer is 202
   */
  async submit(tasks: readonly NewTask[]): Promise<string[]> {
    const response = await fetch(`${this.url}/tasks`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ tasks }),
      signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS),
    });
    if (response.status !== 202)
      throw new Error(`POST /tasks answered ${response.status}: ${await response.text()}`);
    return ((await response.json()) as { ids: string[] }).ids;
  }

  async stats(): Promise<Stats> {
    const response = await fetch(`${this.url}/stats`, { signal: AbortSignal.timeout(REQUEST_TIMEOUT_MS) });
    if (!response.ok) throw new Error(`GET /stats answered ${response.status}: ${await response.text()}`);
    return (await response.json()) as Stats;
  }
}
