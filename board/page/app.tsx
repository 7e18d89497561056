import { useComputed, useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { about, connection, locks, lostAt, status } from './connection.js';
import { Declared } from './declared.js';
import { Details } from './details.js';
import { shown } from './filter.js';
import { FilterForm } from './filter-form.js';
import { clock } from './format.js';
import { Leaders } from './leaders.js';
import { waitersOf } from './lock-cells.js';
import { LockList } from './lock-list.js';
import { Nodes } from './nodes.js';
import { PrefixTimeline } from './prefix-timeline.js';
import { Text } from './text.js';
import { Ticks } from './ticks.js';

const VIEWS = ['locks', 'declared', 'leaders', 'ticks', 'nodes'] as const;
type View = (typeof VIEWS)[number];

export function App() {
  const view = useSignal<View>(viewInAddress());
  useEffect(() => {
    const changed = () => (view.value = viewInAddress());
    addEventListener('hashchange', changed);
    return () => removeEventListener('hashchange', changed);
  }, []);
  return (
    <>
      <header>
        <h1>Locks</h1>
        <Summary />
        <nav aria-label="Views">
          {VIEWS.map((name) => (
            <a key={name} href={`#${name}`} {...(view.value === name && { 'aria-current': 'page' as const })}>
              {name}
            </a>
          ))}
        </nav>
      </header>
      <main>
        <Warnings />
        {view.value === 'locks' && <Locks />}
        {view.value === 'declared' && <Declared />}
        {view.value === 'leaders' && <Leaders />}
        {view.value === 'ticks' && <Ticks />}
        {view.value === 'nodes' && <Nodes />}
      </main>
    </>
  );
}

function viewInAddress(): View {
  return VIEWS.find((name) => location.hash === `#${name}`) ?? 'locks';
}

const STATES = {
  connecting: 'Connecting',
  live: 'Live',
  cut: 'Connection lost, trying again',
  refused: 'Refused, trying again: you may have to sign in',
} as const;

function Summary() {
  const waiting = useComputed(() => [...locks.value.values()].reduce((sum, row) => sum + waitersOf(row), 0));
  const { nodes, hasMore } = status.value;
  const voting = nodes?.nodes.filter((node) => node.state === 'voting').length ?? 0;
  return (
    <p class="summary">
      <span class={`dot ${connection.value}`} aria-hidden="true" />
      <span role="status">{STATES[connection.value]}</span>
      <span>
        {hasMore && 'more than '}
        <b id="count">{locks.value.size}</b> {locks.value.size === 1 ? 'lock' : 'locks'}
      </span>
      <span>
        <b>{waiting.value}</b> waiting
      </span>
      {nodes && (
        <span class={nodes.available ? '' : 'bad'}>
          <b>{voting}</b> of {nodes.nodes.length} {nodes.nodes.length === 1 ? 'node votes' : 'nodes vote'}
        </span>
      )}
      {about.value.owner !== undefined && (
        <span>
          seen from <Text of={about.value.owner} />
        </span>
      )}
    </p>
  );
}

function Warnings() {
  const { problem, nodes, hasMore } = status.value;
  return (
    <>
      {lostAt.value !== undefined && (
        <p class="problem">
          The page shows the state of {clock(lostAt.value)}, until the server answers again.
        </p>
      )}
      {problem !== undefined && (
        <p class="problem" role="alert">
          The locks cannot be read; the list below is out of date. <Text of={problem} />
        </p>
      )}
      {problem === undefined && nodes?.available === false && (
        <p class="problem" role="alert">
          Fewer than {nodes.quorum} nodes vote: nothing can be locked. See nodes.
        </p>
      )}
      {hasMore && (
        <p class="problem">
          The store has more than {locks.value.size} locks. This page shows and searches only these.
        </p>
      )}
    </>
  );
}

function Locks() {
  const chosen = useSignal<number | undefined>(undefined);
  const isTimelineShown = useSignal(false);
  const close = (): void => {
    const index = shown.value.findIndex(({ n }) => n === chosen.value);
    chosen.value = undefined;
    requestAnimationFrame(() =>
      document.querySelector<HTMLElement>(`[data-index="${index}"] button`)?.focus(),
    );
  };
  return (
    <div class={`locks${chosen.value === undefined ? '' : ' with-details'}`}>
      <FilterForm
        isTimelineShown={isTimelineShown.value}
        showTimeline={(isShown) => (isTimelineShown.value = isShown)}
      />
      <section aria-label="Locks">
        {isTimelineShown.value && <PrefixTimeline />}
        <LockList chosen={chosen.value} choose={(n) => (chosen.value = n)} />
      </section>
      {chosen.value !== undefined && <Details n={chosen.value} close={close} />}
    </div>
  );
}
