import type { LabEvent, RunRecord } from '../lab-event.js';
import type { LabHello, LabMessage } from '../page-messages.js';
import { drawLegend, drawRun } from './chart.js';
import { cureOf } from '../strategies/strategy-names.js';
import { describe } from './steps.js';

const REDRAW_MS = 250;
const FIRST_STEPS = 80;

const records = new Map<number, RunRecord>();
/** Stores for the playground. */
let stores: LabHello['stores'] = [];
let chosen: number | undefined;
/** True when the page must be drawn again, because something has happened or time has passed. */
let stale = true;

function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found as T;
}

function element(tag: string, text: string, className = ''): HTMLElement {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

function button(text: string, action: () => void): HTMLElement {
  const made = element('button', text);
  made.setAttribute('type', 'button');
  made.addEventListener('click', action);
  return made;
}

function underWay(): RunRecord | undefined {
  return [...records.values()].find(({ endedAt }) => endedAt === undefined);
}

// The picture of one run

function showRun(): void {
  const record = chosen === undefined ? undefined : records.get(chosen);
  byId('run-section').hidden = !record;
  if (!record) return;
  const changed = record.events.findLast((event) => event.kind === 'settings');
  const { ttl, work } = changed?.kind === 'settings' ? changed : record;
  byId('title').textContent = `${record.scenario === 0 ? 'Playground' : record.scenario}: ${record.title}`;
  byId('plan').textContent =
    record.ttl === 0
      ? `strategy ${record.strategy}`
      : `strategy ${strategyOf(record)}, ttl ${ttl} ms, a job takes ${work} ms, locks in ${placeOf(record)}`;
  showNumbers(record);
  drawRun(byId('chart'), record, Date.now());
  showSteps(record);
}

function showNumbers(record: RunRecord): void {
  const { events, outcome, happened, deviations, notRun } = record;
  const pushes = outcome?.pushes ?? sum(events, (event) => (event.kind === 'pushed' ? event.jobs.length : 0));
  const duplicates = outcome?.duplicates ?? sum(events, (event) => event.duplicates?.length ?? 0);
  const twice = element('b', `${duplicates} duplicates`, duplicates > 0 ? 'bad' : '');
  twice.id = 'duplicates';
  const parts: (string | Node)[] = notRun ? [notRun] : [`${pushes} jobs pushed, `, twice];
  if (happened) parts.push(`. ${happened.charAt(0).toUpperCase()}${happened.slice(1)}.`);
  if (deviations && deviations.length > 0) parts.push(` Not as described: ${deviations.join('; ')}.`);
  byId('numbers').replaceChildren(...parts);
}

function showSteps({ events, startedAt }: RunRecord): void {
  const steps = events.flatMap((event) => {
    const step = describe(event);
    return step ? [{ ...step, at: event.at }] : [];
  });
  // The list shows the last steps of a long run.
  const items = steps.slice(-FIRST_STEPS).map(({ at, text, bad }) => {
    const item = element('li', '', bad ? 'bad' : '');
    item.append(element('time', `${((at - startedAt) / 1_000).toFixed(2)} s`), ` ${text}`);
    return item;
  });
  byId('steps').setAttribute('start', String(Math.max(1, steps.length - FIRST_STEPS + 1)));
  byId('steps').replaceChildren(...items);
}

function sum(events: readonly LabEvent[], value: (event: LabEvent) => number): number {
  return events.reduce((total, event) => total + value(event), 0);
}

// All runs

function showRuns(): void {
  byId('results').hidden = records.size === 0;
  const rows = [...records.values()].map((record) => {
    const { id, scenario, title, outcome, deviations, notRun, endedAt } = record;
    const row = element('tr', '', id === chosen ? 'chosen' : '');
    const choose = element('td', '');
    choose.append(button(scenario === 0 ? `${title} (${placeOf(record)})` : title, () => select(id)));
    const recovery = outcome?.recovery;
    row.append(
      element('td', scenario === 0 ? '' : String(scenario)),
      choose,
      element('td', String(outcome?.duplicates ?? ''), `number ${outcome?.duplicates ? 'bad' : ''}`),
      element('td', String(outcome?.lost ?? ''), `number ${outcome?.lost ? 'bad' : ''}`),
      element(
        'td',
        typeof recovery === 'number' ? `${(recovery / 1_000).toFixed(1)} s` : (recovery ?? ''),
        recovery === 'never' ? 'bad' : '',
      ),
      element(
        'td',
        notRun ? 'not run' : endedAt === undefined ? '…' : deviations?.length === 0 ? 'yes' : 'NO',
      ),
    );
    return row;
  });
  byId('runs').replaceChildren(...rows);
}

function select(id: number): void {
  chosen = id;
  showRuns();
  showRun();
  byId('run-section').scrollIntoView({ block: 'nearest' });
}

// The controls

async function control(command: object): Promise<void> {
  const response = await fetch('/control', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(command),
  }).catch((error: Error) => error);
  const failed = response instanceof Error || !response.ok;
  byId('message').textContent = !failed
    ? ''
    : response instanceof Error
      ? 'The lab does not answer any more.'
      : messageOf((await response.json()) as { message?: string | string[] });
}

function messageOf({ message = 'The request failed' }: { message?: string | string[] }): string {
  return typeof message === 'string' ? message : message.join('; ');
}

function settings(): { ttl?: number; work?: number } {
  const form = new FormData(byId<HTMLFormElement>('start'));
  const given = (name: string): object => (form.get(name) ? { [name]: Number(form.get(name)) } : {});
  return { ...given('ttl'), ...given('work') };
}

/** Note beside the store: the scenarios run only on Redis. */
const ONLY_REDIS =
  'The scenarios run on Redis, because the locks that fail in them are made of its commands; the playground runs on each store.';

function connectControls({ scenarios, stores: offered }: LabHello): void {
  byId('controls').hidden = false;
  stores = offered;
  byId<HTMLSelectElement>('store').replaceChildren(
    ...stores.map(({ name, title, missing, preselected }) => {
      const option = new Option(
        missing === undefined ? title : `${title} (not here)`,
        name,
        preselected,
        preselected,
      );
      option.disabled = missing !== undefined;
      return option;
    }),
  );
  const list = byId<HTMLSelectElement>('scenario');
  list.replaceChildren(
    ...scenarios.map(
      ({ number, title }) => new Option(number === 0 ? title : `${number}. ${title}`, String(number)),
    ),
  );
  showStore();
}

function isPlayground(): boolean {
  return byId<HTMLSelectElement>('scenario').value === '0';
}

/** Shows a store with its availability and description. */
function showStore(): void {
  const list = byId<HTMLSelectElement>('store');
  list.disabled = !isPlayground();
  const chosenStore = stores.find(({ name }) => name === list.value);
  const missing = new Set(stores.flatMap((store) => store.missing ?? []));
  byId('store-note').textContent = isPlayground()
    ? [chosenStore?.note, ...[...missing].map((how) => `${how}.`)].join(' ')
    : ONLY_REDIS;
}

function onClick(id: string, command: () => object): void {
  byId(id).addEventListener('click', () => void control(command()));
}

byId('start').addEventListener('submit', (event) => {
  event.preventDefault();
  const scenario = Number(byId<HTMLSelectElement>('scenario').value);
  const store = isPlayground() ? { store: byId<HTMLSelectElement>('store').value } : {};
  void control({ do: 'start', scenario, ...store, ...settings() });
});
byId('scenario').addEventListener('change', showStore);
byId('store').addEventListener('change', showStore);
onClick('apply', () => ({ do: 'set', ...settings() }));
onClick('stop', () => ({ do: 'stop' }));
onClick('lock-off', () => ({ do: 'lock', lock: 'off' }));
onClick('lock-home-made', () => ({ do: 'lock', lock: 'home-made' }));
onClick('lock-on', () => ({ do: 'lock', lock: 'on' }));

/** Returns the current strategy, which the controls may have changed. */
function strategyOf({ events, strategy }: RunRecord): RunRecord['strategy'] {
  const change = events.findLast((event) => event.kind === 'strategy');
  return change?.kind === 'strategy' ? change.strategy : strategy;
}

/** Describes the servers of the locks. */
function placeOf({ store, nodes }: RunRecord): string {
  if (store === 'redis') return nodes.length === 1 ? 'one Redis' : `${nodes.length} Redis nodes`;
  return nodes.join(', ');
}

/** Returns the kind of the last event of an instance or a node, which decides what its buttons do. */
function stateOf(
  { events }: RunRecord,
  name: string,
  kinds: readonly LabEvent['kind'][],
): LabEvent['kind'] | undefined {
  return events.findLast((event) => event.who === name && kinds.includes(event.kind))?.kind;
}

function chip(name: string, gone: boolean, actions: readonly (readonly [string, object])[]): HTMLElement {
  const made = element('span', '', gone ? 'chip gone' : 'chip');
  made.append(element('span', name));
  for (const [label, command] of actions) {
    const action = button(label, () => void control(command));
    action.setAttribute('aria-label', `${label} ${name}`);
    made.append(action);
  }
  return made;
}

let shownControls = '';

function showControls(): void {
  const run = underWay();
  byId<HTMLButtonElement>('run').disabled = run !== undefined;
  byId<HTMLButtonElement>('stop').disabled = run === undefined;
  byId<HTMLButtonElement>('apply').disabled = run === undefined;
  byId('live').hidden = run === undefined || run.nodes.length === 0;
  if (!run) {
    shownControls = '';
    return;
  }
  const current = strategyOf(run);
  const instances = run.instances.map(
    (name) => [name, stateOf(run, name, ['started', 'killed', 'paused', 'resumed'])] as const,
  );
  const nodes = run.nodes.map(
    (name) => [name, stateOf(run, name, ['node-killed', 'node-started', 'paused', 'resumed'])] as const,
  );
  // Replace the buttons only when the state has changed: a button that is replaced while it is pressed gets no click.
  const shown = JSON.stringify([run.id, current, instances, nodes]);
  if (shown === shownControls) return;
  shownControls = shown;
  const press = (id: string, pressed: boolean): void =>
    byId(id).setAttribute('aria-pressed', String(pressed));
  press('lock-off', current === 'none');
  const cure = cureOf(run.strategy);
  press('lock-home-made', current === run.strategy && current !== 'none' && current !== cure);
  press('lock-on', current === cure);
  byId('lock-home-made').hidden = run.strategy === 'none' || run.strategy === cure;
  byId('instances').replaceChildren(
    ...instances.map(([name, state]) => {
      if (state === 'killed') return chip(name, true, [['start', { do: 'revive', instance: name }]]);
      const pause = state === 'paused' ? 'resume' : 'pause';
      return chip(name, false, [
        [pause, { do: pause, instance: name }],
        ['kill', { do: 'kill', instance: name }],
      ]);
    }),
  );
  byId('nodes').replaceChildren(
    ...nodes.map(([name, state]) => {
      if (state === 'node-killed') return chip(name, true, [['start', { do: 'start-node', node: name }]]);
      const pause = state === 'paused' ? 'resume' : 'pause';
      return chip(name, false, [
        [pause, { do: `${pause}-node`, node: name }],
        ['kill', { do: 'kill-node', node: name }],
      ]);
    }),
  );
}

// Source of the runs

function receive(message: LabMessage): void {
  switch (message.type) {
    case 'hello':
      records.clear();
      for (const record of message.records) records.set(record.id, record);
      connectControls(message);
      chosen = message.records.at(-1)?.id;
      break;
    case 'run':
      records.set(message.record.id, message.record);
      chosen = message.record.id;
      break;
    case 'event':
      records.get(message.run)?.events.push(message.event);
      break;
    case 'end': {
      const known = records.get(message.record.id);
      if (known) Object.assign(known, message.record);
      break;
    }
  }
  if (message.type !== 'event') showRuns();
  stale = true;
}

function listen(): void {
  const stream = new EventSource('/events');
  stream.addEventListener('message', ({ data }) => receive(JSON.parse(data as string) as LabMessage));
  stream.addEventListener('open', () => {
    byId('connection').textContent = 'Live. Start a scenario, and change what happens while it runs.';
  });
  stream.addEventListener('error', () => {
    byId('connection').textContent = 'The lab has ended or cannot be reached; trying again.';
  });
}

drawLegend(byId('legend'));
const stored = JSON.parse(byId('records').textContent ?? 'null') as RunRecord[] | null;
if (stored) {
  for (const record of stored) records.set(record.id, record);
  chosen = stored[0]?.id;
  byId('connection').textContent = 'Recorded by npm run lab. Run npm run lab -- --open to try it yourself.';
  showRuns();
} else {
  listen();
}
addEventListener('resize', () => (stale = true));
setInterval(() => {
  if (!stale && !(chosen !== undefined && chosen === underWay()?.id)) return;
  stale = false;
  showRun();
  showControls();
}, REDRAW_MS);
