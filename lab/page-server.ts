import { readFile } from 'node:fs/promises';
import {
  BadRequestException,
  Body,
  type CanActivate,
  ConflictException,
  Controller,
  type DynamicModule,
  type ExecutionContext,
  Get,
  Header,
  HttpCode,
  Inject,
  Injectable,
  type MessageEvent,
  Module,
  NotFoundException,
  Post,
  Sse,
  StandardSchemaValidationPipe,
  UseGuards,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import type { NestExpressApplication } from '@nestjs/platform-express';
import type { Request } from 'express';
import { Observable } from 'rxjs';
import { z } from 'zod';
import type { LockStore } from '../sample-app/config/environment.js';
import type { StopList } from '../sample-app/demo/stop-list.js';
import { Lab } from './lab.js';
import type { RunRecord } from './lab-event.js';
import type { LockServer } from './lock-server.js';
import type { LabHello } from './page-messages.js';
import { PLAYGROUND, SCENARIOS } from './scenarios.js';
import type { LabInstance, Stage } from './stage.js';
import { problemOfTtl, type StoreChoice } from './store-choices.js';
import { cureOf } from './strategies/strategy-names.js';

const PAGE = new URL('./page.html', import.meta.url);
const POLICY =
  "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:";

/** Returns the page as one HTML file that contains these runs. With `null`, the page gets the runs from this server. */
export async function pageWith(records: readonly RunRecord[] | null): Promise<string> {
  const page = await readFile(PAGE, 'utf8');
  const json = JSON.stringify(records).replaceAll('<', '\\u003c');
  return page.replace(
    /(<script type="application\/json" id="records">)[^<]*/,
    (_match, tag: string) => tag + json,
  );
}

/** The error for a request that chooses a store for a scenario. The page shows the same rule. */
const ONLY_REDIS = 'The scenarios run on Redis; a store can be chosen for the playground';

const milliseconds = z.int().min(0).max(60_000);

const commandSchema = z.discriminatedUnion('do', [
  z.strictObject({
    do: z.literal('start'),
    scenario: z.int(),
    store: z.string().optional(),
    ttl: milliseconds.min(100).optional(),
    work: milliseconds.optional(),
  }),
  z.strictObject({ do: z.literal('stop') }),
  z.strictObject({
    do: z.literal('set'),
    ttl: milliseconds.min(100).optional(),
    work: milliseconds.optional(),
  }),
  z.strictObject({ do: z.literal('lock'), lock: z.enum(['off', 'home-made', 'on']) }),
  z.strictObject({ do: z.enum(['kill', 'pause', 'resume', 'revive']), instance: z.string() }),
  z.strictObject({
    do: z.enum(['kill-node', 'start-node', 'pause-node', 'resume-node']),
    node: z.string(),
  }),
]);

type Command = z.output<typeof commandSchema>;

/**
 * Other pages in the same browser can send requests to this server, and can make their host name resolve to this
 * machine (DNS rebinding). The guard admits only requests that this page would send.
 */
@Injectable()
class OnlyThisPage implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    const { headers, socket } = context.switchToHttp().getRequest<Request>();
    const own = [`127.0.0.1:${socket.localPort}`, `localhost:${socket.localPort}`];
    const { host = '', origin } = headers;
    return own.includes(host) && (origin === undefined || origin === `http://${host}`);
  }
}

@Controller()
@UseGuards(OnlyThisPage)
class PageController {
  constructor(@Inject(Lab) private readonly lab: Lab) {}

  @Get()
  @Header('content-type', 'text/html; charset=utf-8')
  @Header('content-security-policy', POLICY)
  page(): Promise<string> {
    return pageWith(null);
  }

  /** Tells a second lab on the same port that this lab is running. */
  @Get('lab')
  identity(): { lab: string; pid: number } {
    return { lab: 'nestjs-redlock', pid: process.pid };
  }

  @Sse('events')
  events(): Observable<MessageEvent> {
    return new Observable((subscriber) => {
      const say = (data: object): void => subscriber.next({ data });
      const hello: LabHello = {
        type: 'hello',
        records: this.lab.records,
        scenarios: [PLAYGROUND, ...SCENARIOS].map(({ number, title }) => ({ number, title })),
        stores: this.lab.stores,
      };
      say(hello);
      const watcher = {
        runStarted: (record: RunRecord) => say({ type: 'run', record }),
        event: (run: number, event: object) => say({ type: 'event', run, event }),
        runEnded: ({ events: _events, ...record }: RunRecord) => say({ type: 'end', record }),
      };
      this.lab.watchers.add(watcher);
      return () => this.lab.watchers.delete(watcher);
    });
  }

  @Post('control')
  @HttpCode(204)
  async control(@Body({ schema: commandSchema }) command: Command): Promise<void> {
    if (command.do === 'start') this.start(command);
    else if (command.do === 'stop') this.lab.stop();
    else await this.change(command);
  }

  private start({ scenario: number, store, ttl, work }: Extract<Command, { do: 'start' }>): void {
    const scenario = [PLAYGROUND, ...SCENARIOS].find((each) => each.number === number);
    if (!scenario) throw new NotFoundException(`There is no scenario ${number}`);
    if (store !== undefined && scenario !== PLAYGROUND) throw new BadRequestException(ONLY_REDIS);
    if (this.lab.busy) throw new ConflictException('A scenario is already running; stop it first');
    const plan = store === undefined ? undefined : this.planOf(store);
    checkTtl(plan?.store, ttl);
    this.lab
      .run(scenario, { ...plan, ...(ttl !== undefined && { ttl }), ...(work !== undefined && { work }) })
      .catch((error: Error) => console.error(error.message));
  }

  private planOf(store: string): StoreChoice['plan'] {
    const choice = this.lab.stores.find(({ name }) => name === store);
    if (!choice) {
      const names = this.lab.stores.map(({ name }) => name).join(', ');
      throw new BadRequestException(`There is no store "${store}"; there are ${names}`);
    }
    if (choice.missing !== undefined) throw new BadRequestException(choice.missing);
    return choice.plan;
  }

  private async change(command: Exclude<Command, { do: 'start' | 'stop' }>): Promise<void> {
    const { stage } = this.lab;
    if (!stage && this.lab.busy)
      throw new ConflictException('The run starts or ends its servers; try again in a moment');
    if (!stage) throw new ConflictException('Nothing is running; start a scenario first');
    switch (command.do) {
      case 'set':
        checkTtl(stage.plan.store, command.ttl);
        if (command.work !== undefined) stage.setWork(command.work);
        if (command.ttl !== undefined) await stage.setTtl(command.ttl);
        return;
      case 'lock':
        stage.use(
          command.lock === 'off'
            ? 'none'
            : command.lock === 'on'
              ? cureOf(stage.plan.strategy)
              : stage.plan.strategy,
        );
        return;
      case 'kill':
        return stage.kill(instanceOf(stage, command.instance));
      case 'pause':
        return stage.pause(instanceOf(stage, command.instance));
      case 'resume':
        return stage.resume(instanceOf(stage, command.instance));
      case 'revive':
        return stage.revive(instanceOf(stage, command.instance));
      case 'kill-node':
        return stage.killNode(nodeOf(stage, command.node));
      case 'start-node':
        return stage.startNode(nodeOf(stage, command.node));
      case 'pause-node':
        return stage.pauseNode(nodeOf(stage, command.node));
      case 'resume-node':
        return stage.resumeNode(nodeOf(stage, command.node));
    }
  }
}

function checkTtl(store: LockStore | undefined, ttl: number | undefined): void {
  const problem = store && ttl !== undefined ? problemOfTtl(store, ttl) : undefined;
  if (problem !== undefined) throw new BadRequestException(problem);
}

function nodeOf({ nodes }: Stage, name: string): LockServer {
  const node = nodes.find((each) => each.name === name);
  if (!node) throw new BadRequestException(`There is no node ${name}`);
  return node;
}

function instanceOf({ instances }: Stage, name: string): LabInstance {
  const instance = instances.find((each) => each.name === name);
  if (!instance) throw new BadRequestException(`There is no instance ${name}`);
  return instance;
}

@Module({ controllers: [PageController], providers: [OnlyThisPage] })
class PageModule {
  static register(lab: Lab): DynamicModule {
    return { module: PageModule, providers: [{ provide: Lab, useValue: lab }] };
  }
}

/**
 * Serves the page on the loopback interface.
 * @returns the URL of the page
 * @throws Error with the remedy when the port is in use
 */
export async function servePage(lab: Lab, port: number, stops: StopList): Promise<string> {
  const app = await NestFactory.create<NestExpressApplication>(PageModule.register(lab), {
    // Nest logs nothing during the start: if the port is in use, the lab prints its own message.
    logger: false,
    abortOnError: false,
    forceCloseConnections: true,
  });
  app.useGlobalPipes(new StandardSchemaValidationPipe());
  await stops.add(() => app.close());
  try {
    await app.listen(port, '127.0.0.1');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    throw new Error(await whoHas(port), { cause: error });
  }
  app.useLogger(['error']);
  return app.getUrl();
}

async function whoHas(port: number): Promise<string> {
  const url = `http://127.0.0.1:${port}`;
  try {
    const response = await fetch(`${url}/lab`, { signal: AbortSignal.timeout(5_000) });
    const { lab, pid } = (await response.json()) as { lab?: string; pid?: number };
    if (lab === 'nestjs-redlock') {
      return `A lab is running already (process ${pid}): see ${url}, or end it with Ctrl-C where it was started.`;
    }
  } catch {
    // Another program has the port.
  }
  return `Port ${port} is in use. Choose another one: npm run lab -- --port 4180`;
}
