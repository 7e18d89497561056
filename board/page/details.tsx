import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { holdIn } from '../../lib/core/hold-name.js';
import type { HolderRow, LockDetails, LockRow } from '../../lib/board/live/messages.js';
import { about, fetchDetails, locks } from './connection.js';
import { commandFor } from './format.js';
import { Left, Since } from './lock-cells.js';
import { ReleaseDialog } from './release-dialog.js';
import { Text } from './text.js';
import { TimelineView } from './timeline-view.js';

/** Milliseconds between two requests for the details, while they are open. */
const ASK_AGAIN_MS = 1_000;

/** Number of characters of a key that are shown at first. A button shows the other characters. */
const MOST_OF_KEY = 400;

/** Shows one lock with all that is known of it. */
export function Details({ n, close }: { n: number; close: () => void }) {
  const details = useSignal<LockDetails | undefined>(undefined);
  const whole = useSignal(false);
  const back = useSignal(120_000);
  const asking = useSignal<readonly HolderRow[] | undefined>(undefined);
  const said = useSignal('');
  const heading = useRef<HTMLHeadingElement>(null);
  const row = locks.value.get(n);

  useEffect(() => {
    details.value = undefined;
    whole.value = false;
    said.value = '';
    let isOpen = true;
    const ask = async (): Promise<void> => {
      const answer = await fetchDetails(n);
      if (isOpen && answer) details.value = answer;
    };
    void ask();
    const timer = setInterval(() => void ask(), ASK_AGAIN_MS);
    heading.current?.focus();
    return () => {
      isOpen = false;
      clearInterval(timer);
    };
  }, [n]);

  const known = details.value;
  const key = known?.key ?? row?.key ?? '';
  const declared = about.value.declared.find(({ keys }) => keys?.includes(key));
  const isLong = key.length > MOST_OF_KEY;
  const holders = row ? withLatest(known?.holders ?? row.holders, row) : [];
  const copy = async (text: string, what: string): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
      said.value = `${what} is in the clipboard.`;
    } catch {
      // On pages without https, browsers have no clipboard, so show the text.
      said.value = text;
    }
  };

  return (
    <aside
      class="details"
      aria-label="One lock"
      onKeyDown={({ key: pressed }) => pressed === 'Escape' && close()}
    >
      <div class="bar">
        <h2 tabIndex={-1} ref={heading}>
          <Text of={whole.value || !isLong ? key : key.slice(0, MOST_OF_KEY)} cut={isLong && !whole.value} />
        </h2>
        <button type="button" class="close" aria-label="Close" onClick={close}>
          ✕
        </button>
      </div>
      {isLong && (
        <button type="button" onClick={() => (whole.value = !whole.value)}>
          {whole.value ? 'Show less' : `Show all ${key.length} characters`}
        </button>
      )}
      <div class="actions">
        <button type="button" onClick={() => void copy(commandFor(key), 'The command')}>
          Copy the command
        </button>
        <button type="button" onClick={() => void copy(key, 'The key')}>
          Copy the key
        </button>
        {about.value.allowForceRelease && holders.length > 1 && (
          <button type="button" class="danger" onClick={() => (asking.value = holders)}>
            Release all…
          </button>
        )}
      </div>
      {declared && (
        <p>
          Declared as <Text of={declared.name} />
          {declared.team !== undefined && (
            <>
              , team <Text of={declared.team} />
            </>
          )}
          {declared.about !== undefined && (
            <>
              : <Text of={declared.about} />
            </>
          )}
        </p>
      )}
      <p class="said" role="status">
        {said.value}
      </p>

      <h3>{holders.length > 1 ? `${holders.length} holders` : 'Holder'}</h3>
      {row?.permits !== undefined && <Slots permits={row.permits} holders={holders} />}
      {holders.length === 0 && <p>Nobody holds this lock at present.</p>}
      {holders.map((holder) => (
        <Holder
          key={holder.id}
          holder={holder}
          release={about.value.allowForceRelease ? () => (asking.value = [holder]) : undefined}
        />
      ))}

      <h3>Waiting</h3>
      <Waiters row={row} known={known} />

      <h3>The last minutes</h3>
      <TimelineView
        key={n}
        title="This lock"
        isOneLock
        history={known?.history ?? []}
        back={back.value}
        setBack={(milliseconds) => (back.value = milliseconds)}
      />

      {known && known.votes.length > 0 && (
        <>
          <h3>Nodes</h3>
          <ul class="votes">
            {known.votes.map(({ node, says }) => (
              <li key={node}>
                <b>
                  <Text of={node} />
                </b>{' '}
                <Text of={says} />
              </li>
            ))}
          </ul>
        </>
      )}
      {asking.value && (
        <ReleaseDialog
          n={n}
          lockKey={key}
          holders={asking.value}
          close={(outcome) => {
            asking.value = undefined;
            if (outcome !== undefined) said.value = outcome;
          }}
        />
      )}
    </aside>
  );
}

/**
 * Combines the details, which have whole names of owners, with the stream, which is newer. If the stream has only some
 * of the holders, returns those of the details.
 */
function withLatest(holders: readonly HolderRow[], row: LockRow): readonly HolderRow[] {
  const whole = new Map(holders.map((holder) => [holder.id, holder.owner]));
  if (row.more !== undefined) return holders;
  return row.holders.map((holder) => ({ ...holder, owner: whole.get(holder.id) ?? holder.owner }));
}

function Holder({ holder, release }: { holder: HolderRow; release: (() => void) | undefined }) {
  const { owner, id, since, renewals, token, slot, detached, own } = holder;
  const hold = holdIn(owner);
  return (
    <dl class="holder">
      <dt>Owner</dt>
      <dd>
        <Text of={hold?.by ?? owner} />
        {own && <span class="badge">this process</span>}
      </dd>
      {hold && (
        <>
          <dt>Until</dt>
          <dd>{new Date(hold.until).toLocaleString()}</dd>
          <dt>Reason</dt>
          <dd>
            <Text of={hold.reason} />
          </dd>
        </>
      )}
      {detached && (
        <>
          <dt>Detached</dt>
          <dd>waits for the process that attaches it</dd>
        </>
      )}
      {slot !== undefined && (
        <>
          <dt>Slot</dt>
          <dd>{slot}</dd>
        </>
      )}
      <dt>Held for</dt>
      <dd>
        <Since at={since} />
      </dd>
      <dt>Left</dt>
      <dd>
        <Left holder={holder} />
      </dd>
      {renewals > 0 && (
        <>
          <dt>Renewals</dt>
          <dd>{renewals} seen</dd>
        </>
      )}
      <dt>Token</dt>
      <dd>{token ?? 'not confirmed'}</dd>
      <dt>Id</dt>
      <dd>
        <Text of={id} />
      </dd>
      {release && (
        <dd class="end">
          <button type="button" class="danger" onClick={release}>
            Release…
          </button>
        </dd>
      )}
    </dl>
  );
}

function Slots({ permits, holders }: { permits: number; holders: readonly HolderRow[] }) {
  const taken = new Set(holders.map(({ slot }) => slot));
  const most = Math.min(permits, 200);
  return (
    <p class="slots">
      {`${holders.length} of ${permits} permits taken `}
      <span role="img" aria-label={`slots ${[...taken].join(', ')}`}>
        {Array.from({ length: most }, (_, slot) => (
          <i key={slot} class={taken.has(slot) ? 'taken' : ''} />
        ))}
      </span>
    </p>
  );
}

function Waiters({ row, known }: { row: LockRow | undefined; known: LockDetails | undefined }) {
  const waiters = known?.waiters ?? row?.waiters ?? [];
  if (waiters.length === 0) return <p>Nobody waits.</p>;
  return (
    <ol class="waiters">
      {waiters.map(({ owner, since, mode, method, own }, index) => (
        <li key={index}>
          <Text of={owner} />
          {own && <span class="badge">this process</span>}
          {method !== undefined && (
            <>
              {' '}
              <Text of={method} />
            </>
          )}
          {mode !== 'exclusive' && ` (${mode})`}, for <Since at={since} />
        </li>
      ))}
    </ol>
  );
}
