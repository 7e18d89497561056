import { useComputed, useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { HistoryEntry, LockRow } from '../../lib/board/live/messages.js';
import { about, connection, fetchHistory, locks, now, status } from './connection.js';
import { Details } from './details.js';
import { order, owner, prefix, search, shown, state, type Order, type State } from './filter.js';
import { clock, duration } from './format.js';
import { Kind, Left, LockList, Since, waitersOf } from './lock-list.js';
import { Text } from './text.js';
import { TimelineView } from './timeline-view.js';

const VIEWS = ['locks', 'declared', 'leaders', 'ticks', 'nodes'] as const;
type View = (typeof VIEWS)[number];

const LEADER_PREFIX = 'leader:';

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

const STATE_NAMES: Readonly<Record<State, string>> = {
  all: 'all',
  waited: 'waited for',
  shared: 'shared',
  permits: 'with permits',
  own: 'of this process',
  ends: 'without an expiry',
  broken: 'without a quorum',
};

const ORDER_NAMES: Readonly<Record<Order, string>> = {
  key: 'key',
  owner: 'owner',
  since: 'longest held',
  ends: 'first to end',
  waiters: 'most waited for',
};

function Locks() {
  const chosen = useSignal<number | undefined>(undefined);
  const timeline = useSignal(false);
  const close = (): void => {
    const index = shown.value.findIndex(({ n }) => n === chosen.value);
    chosen.value = undefined;
    requestAnimationFrame(() =>
      document.querySelector<HTMLElement>(`[data-index="${index}"] button`)?.focus(),
    );
  };
  return (
    <div class={`locks${chosen.value === undefined ? '' : ' with-details'}`}>
      <section aria-label="Locks">
        <form class="filter" role="search" onSubmit={(event) => event.preventDefault()}>
          <label>
            Search
            <input
              type="search"
              name="search"
              value={search.value}
              onInput={({ currentTarget }) => (search.value = currentTarget.value)}
            />
          </label>
          <label>
            Begins with
            <input
              name="prefix"
              value={prefix.value}
              onInput={({ currentTarget }) => (prefix.value = currentTarget.value)}
            />
          </label>
          <label>
            Owner
            <input
              name="owner"
              value={owner.value}
              onInput={({ currentTarget }) => (owner.value = currentTarget.value)}
            />
          </label>
          <Choice
            name="state"
            label="State"
            names={STATE_NAMES}
            value={state.value}
            set={(value) => (state.value = value)}
          />
          <Choice
            name="order"
            label="Order"
            names={ORDER_NAMES}
            value={order.value}
            set={(value) => (order.value = value)}
          />
          <button
            type="button"
            aria-pressed={timeline.value}
            onClick={() => (timeline.value = !timeline.value)}
          >
            Timeline
          </button>
          <span class="matches" role="status">
            {shown.value.length === locks.value.size ? '' : `${shown.value.length} match`}
          </span>
        </form>
        {timeline.value && <PrefixTimeline />}
        <LockList chosen={chosen.value} choose={(n) => (chosen.value = n)} />
      </section>
      {chosen.value !== undefined && <Details n={chosen.value} close={close} />}
    </div>
  );
}

interface ChoiceProps<Name extends string> {
  readonly name: string;
  readonly label: string;
  readonly names: Readonly<Record<Name, string>>;
  readonly value: Name;
  readonly set: (value: Name) => void;
}

function Choice<Name extends string>({ name, label, names, value, set }: ChoiceProps<Name>) {
  return (
    <label>
      {label}
      <select name={name} value={value} onChange={({ currentTarget }) => set(currentTarget.value as Name)}>
        {Object.entries<string>(names).map(([each, text]) => (
          <option key={each} value={each}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Shows the events of all locks whose keys begin with the entered prefix. */
function PrefixTimeline() {
  const history = useSignal<readonly HistoryEntry[]>([]);
  const back = useSignal(30_000);
  const text = prefix.value;
  useEffect(() => {
    let isOpen = true;
    const ask = async (): Promise<void> => {
      const answer = await fetchHistory(text);
      if (isOpen && answer) history.value = answer;
    };
    void ask();
    const timer = setInterval(() => void ask(), 1_000);
    return () => {
      isOpen = false;
      clearInterval(timer);
    };
  }, [text]);
  return (
    <TimelineView
      title={text === '' ? 'All locks' : `Locks that begin with ${text}`}
      history={history.value}
      back={back.value}
      setBack={(milliseconds) => (back.value = milliseconds)}
    />
  );
}

function Declared() {
  const { declared, owner: processName } = about.value;
  // Without the name of a process, this page comes from the command `npx nestjs-redlock board`.
  if (processName === undefined)
    return (
      <p>
        This command does not know the declared locks.{' '}
        <code>npx nestjs-redlock list --declared --locks FILE</code> lists them.
      </p>
    );
  if (declared.length === 0)
    return (
      <p>
        No locks are declared here. <code>defineLocks</code> declares them, and a module takes them as{' '}
        <code>locks</code>.
      </p>
    );
  const byKey = new Map([...locks.value.values()].map((row) => [row.key, row]));
  return (
    <table>
      <thead>
        <tr>
          <th scope="col">Name</th>
          <th scope="col">Key</th>
          <th scope="col">State</th>
          <th scope="col">Kind and policy, in milliseconds</th>
          <th scope="col">Team</th>
          <th scope="col">What it is for</th>
        </tr>
      </thead>
      <tbody>
        {declared.map(({ name, keys, team = '', about: purpose = '', mode, permits, policy, overridden }) => (
          <tr key={name}>
            <th scope="row">
              <Text of={name} />
            </th>
            <td>{keys ? <Text of={keys.join(', ')} /> : 'from a function'}</td>
            <td>{keys && <DeclaredState rows={keys.flatMap((key) => byKey.get(key) ?? [])} />}</td>
            <td>
              {permits === undefined ? mode : `${permits} permits`}, {policy}
              {overridden.length > 0 && <span class="badge">overridden: {overridden.join(', ')}</span>}
            </td>
            <td>
              <Text of={team} />
            </td>
            <td>
              <Text of={purpose} />
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function DeclaredState({ rows }: { rows: readonly LockRow[] }) {
  const [row] = rows;
  const [holder] = row?.holders ?? [];
  if (!row || !holder) return <span class="badge">free</span>;
  return (
    <>
      <Kind row={row} /> <Text of={holder.owner} />, for <Since at={holder.since} />
    </>
  );
}

function Leaders() {
  const { campaigns } = status.value;
  const led = new Map<string, LockRow>();
  for (const row of locks.value.values())
    if (row.key.startsWith(LEADER_PREFIX) && row.mode !== null)
      led.set(row.key.slice(LEADER_PREFIX.length), row);
  const names = [...new Set([...led.keys(), ...campaigns.map(({ name }) => name)])].toSorted();
  if (names.length === 0) return <p>There is no leader, and this process campaigns for no name.</p>;
  return (
    <table>
      <thead>
        <tr>
          <th scope="col">Name</th>
          <th scope="col">Leader</th>
          <th scope="col">Leads for</th>
          <th scope="col">Ends in</th>
          <th scope="col">Term</th>
          <th scope="col">This process</th>
        </tr>
      </thead>
      <tbody>
        {names.map((name) => {
          const holder = led.get(name)?.holders[0];
          const campaign = campaigns.find((each) => each.name === name);
          return (
            <tr key={name}>
              <th scope="row">
                <Text of={name} />
              </th>
              <td>{holder ? <Text of={holder.owner} /> : 'nobody'}</td>
              <td>{holder && <Since at={holder.since} />}</td>
              <td>{holder && <Left ends={holder.ends} />}</td>
              <td class="number">{holder?.token ?? ''}</td>
              <td>{campaign ? (campaign.isLeader ? 'leads' : 'campaigns') : ''}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}

function Ticks() {
  const { ticks } = status.value;
  if (ticks.length === 0)
    return (
      <p>
        This process has not yet run or skipped a tick of a method with <code>oncePerTick</code>.
      </p>
    );
  return (
    <>
      <p>
        These are the ticks that this process has run or skipped. A tick that ran in another process is known
        only if it was skipped here.
      </p>
      <table>
        <thead>
          <tr>
            <th scope="col">Method</th>
            <th scope="col">Key</th>
            <th scope="col">Ran here</th>
            <th scope="col">Last run</th>
            <th scope="col">Skipped here</th>
            <th scope="col">Last skip, and who ran the tick</th>
          </tr>
        </thead>
        <tbody>
          {ticks.map(({ method, key, ran, skipped, lastRun, lastSkip }) => (
            <tr key={method}>
              <th scope="row">
                <Text of={method} />
              </th>
              <td>
                <Text of={key} />
              </td>
              <td class="number">{ran}</td>
              <td>{lastRun && tickText(lastRun)}</td>
              <td class="number">{skipped}</td>
              <td>
                {lastSkip && tickText(lastSkip)}
                {lastSkip?.by !== undefined && (
                  <>
                    {', '}
                    <Text of={lastSkip.by} />
                  </>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

/**
 * Shows when a tick ran or was skipped. A tick of an `@Interval` has no planned time, so the clock time of the event is
 * shown.
 */
function tickText({ tick, at }: { tick: number; at: number }): string {
  return `${clock(tick === 0 ? at : tick)} (${duration(Math.max(0, now.value - at))} ago)`;
}

function Nodes() {
  const { nodes } = status.value;
  if (!nodes) return <p>The nodes have not been checked yet.</p>;
  return (
    <>
      <p>
        {nodes.quorum} of {nodes.nodes.length} must agree.
      </p>
      <table>
        <thead>
          <tr>
            <th scope="col">Node</th>
            <th scope="col">State</th>
            <th scope="col">Why, and what to change</th>
          </tr>
        </thead>
        <tbody>
          {nodes.nodes.map(({ node, state: condition, votesIn, reason, warnings }) => (
            <tr key={node}>
              <th scope="row">
                <Text of={node} />
              </th>
              <td>
                <span class={`badge${condition === 'voting' ? '' : ' bad'}`}>{condition}</span>
                {votesIn !== undefined && ` votes in ${duration(votesIn)}`}
              </td>
              <td>
                {reason !== undefined && <Text of={reason} />}
                {warnings.map((warning) => (
                  <p key={warning}>
                    <Text of={warning} />
                  </p>
                ))}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}
