// Measures how much a board (the web page with the locks of a process) slows down the locks of its process. The command
// is `npm run bench:board -- redis://localhost:6379`, with a server that nothing else uses. Three processes take turns:
// one without a board, one whose board nobody views, and one whose board always has a viewer. In each turn a
// process acquires a thousand locks a second, and then as many as possible with 64 at a time.
import 'reflect-metadata';
import { fork } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { NestFactory } from '@nestjs/core';
import { LockService, RedlockModule } from '../dist/esm/index.js';
import { RedlockBoardModule } from '../dist/esm/board.js';

const MODES = ['without a board', 'nobody looks', 'somebody looks'];
const ROUNDS = 8;
const PER_SECOND = 1_000;
const PACED_MS = 3_000;
const FLAT_OUT_MS = 1_500;
const AT_A_TIME = 64;

const [first, mode] = process.argv.slice(2);
const url = first ?? 'redis://localhost:6379';
if (mode === undefined) await compare();
else await serve();

async function serve() {
  const board = mode === MODES[0] ? [] : [RedlockBoardModule.forRoot({ path: '/locks', public: true })];
  const imports = [RedlockModule.forRoot({ nodes: url, owner: mode }), ...board];
  const app = await NestFactory.create(
    { module: function App() {}, imports },
    { logger: ['error'], forceCloseConnections: true },
  );
  await app.listen(0, '127.0.0.1');
  const locks = app.get(LockService);
  process.on('message', async (what) => {
    if (what === 'end') {
      await app.close();
      process.disconnect();
      return;
    }
    process.send(await measure(locks));
  });
  process.send({ page: `${await app.getUrl()}/locks` });
}

async function measure(locks) {
  let n = 0;
  const once = async () => {
    const lock = await locks.acquire(`bench:${mode}:${n++ % 5_000}`);
    await lock.release();
  };
  const times = [];
  const timed = async () => {
    const began = performance.now();
    await once();
    times.push(performance.now() - began);
  };
  const cpu = process.cpuUsage();
  const began = performance.now();
  const all = [];
  while (performance.now() - began < PACED_MS) {
    const due = ((performance.now() - began) * PER_SECOND) / 1_000;
    while (all.length < due) all.push(timed());
    await sleep(1);
  }
  await Promise.all(all);
  const { user, system } = process.cpuUsage(cpu);
  const started = performance.now();
  let done = 0;
  const worker = async () => {
    while (performance.now() - started < FLAT_OUT_MS) {
      await once();
      done++;
    }
  };
  await Promise.all(Array.from({ length: AT_A_TIME }, worker));
  return {
    'CPU per lock, µs': (user + system) / all.length,
    'median latency, ms': median(times),
    'locks a second, 64 at a time': (done * 1_000) / (performance.now() - started),
  };
}

async function compare() {
  const children = await Promise.all(
    MODES.map(async (each) => {
      const child = fork(fileURLToPath(import.meta.url), [url, each]);
      const { page } = await heard(child);
      return { each, child, page, results: [] };
    }),
  );
  // Only the board of the last process has a viewer.
  const stream = await fetch(`${children.at(-1).page}/events`);
  void (async () => {
    for await (const _ of stream.body);
  })().catch(() => undefined);
  for (let round = 0; round <= ROUNDS; round++) {
    for (const { child, results } of children) {
      child.send('measure');
      const result = await heard(child);
      // The first round warms the processes up, and does not count.
      if (round > 0) results.push(result);
    }
  }
  const [base] = children;
  for (const name of Object.keys(base.results[0])) {
    const of = (results) => median(results.map((result) => result[name]));
    console.log(name);
    for (const { each, results } of children)
      console.log(
        `  ${each.padEnd(16)} ${of(results).toFixed(2).padStart(10)}  ${(of(results) / of(base.results)).toFixed(2)}`,
      );
  }
  for (const { child } of children) child.send('end');
}

function heard(child) {
  return new Promise((resolve) => child.once('message', resolve));
}

function median(numbers) {
  return numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)];
}
