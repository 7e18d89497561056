import { useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { locks } from './connection.js';
import {
  clearFilters,
  filterCount,
  order,
  type Order,
  owner,
  prefix,
  search,
  shown,
  state,
  type State,
} from './filter.js';

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

interface FilterFormProps {
  readonly isTimelineShown: boolean;
  readonly showTimeline: (isShown: boolean) => void;
}

/** The search and the filters of the list. On a narrow screen, a button shows and hides the filters. */
export function FilterForm({ isTimelineShown, showTimeline }: FilterFormProps) {
  const isOpen = useSignal(false);
  const searchInput = useRef<HTMLInputElement>(null);
  const count = filterCount.value;
  return (
    <form class="filter" role="search" onSubmit={(event) => event.preventDefault()}>
      <label class="search">
        <span>Search</span>
        <input
          type="search"
          ref={searchInput}
          name="search"
          placeholder="Key or owner"
          value={search.value}
          onInput={({ currentTarget }) => (search.value = currentTarget.value)}
        />
      </label>
      <button
        type="button"
        class="open-filters"
        aria-expanded={isOpen.value}
        aria-controls="filters"
        onClick={() => (isOpen.value = !isOpen.value)}
      >
        {count === 0 ? 'Filters' : `Filters (${count})`}
      </button>
      <div id="filters" class={isOpen.value ? 'open' : ''}>
        <label>
          <span>Begins with</span>
          <input
            name="prefix"
            value={prefix.value}
            onInput={({ currentTarget }) => (prefix.value = currentTarget.value)}
          />
        </label>
        <label>
          <span>Owner</span>
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
        <button type="button" aria-pressed={isTimelineShown} onClick={() => showTimeline(!isTimelineShown)}>
          Timeline
        </button>
        {count > 0 && (
          <button
            type="button"
            onClick={() => {
              clearFilters();
              searchInput.current?.focus();
            }}
          >
            Clear
          </button>
        )}
      </div>
      <span class="matches" role="status">
        {shown.value.length === locks.value.size ? '' : `${shown.value.length} match`}
      </span>
    </form>
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
      <span>{label}</span>
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
