import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { HolderRow } from '../../lib/board/live/messages.js';
import { release } from './connection.js';
import { Since } from './lock-cells.js';
import { Text } from './text.js';

const MOST_OF_KEY = 100;
const MOST_NAMED = 5;

interface ReleaseProps {
  readonly n: number;
  readonly lockKey: string;
  readonly holders: readonly HolderRow[];
  /** @param outcome - a text with the result; `undefined` when the user cancelled */
  readonly close: (outcome?: string) => void;
}

/** Asks for confirmation before a lock is released by force. Shows the holders of the lock and the consequences. */
export function ReleaseDialog({ n, lockKey, holders, close }: ReleaseProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const busy = useSignal(false);
  const failure = useSignal('');
  useEffect(() => dialog.current?.showModal(), []);
  const several = holders.length > 1;

  const go = async (): Promise<void> => {
    busy.value = true;
    try {
      const released = await release(
        n,
        holders.map(({ id }) => id),
      );
      close(
        released === 0
          ? 'The lock had already ended: nothing was released.'
          : several
            ? `Released ${released} of ${holders.length} holders. They notice the loss at their next renewals.`
            : 'Released. Its holder notices the loss at its next renewal.',
      );
    } catch (error) {
      failure.value = (error as Error).message;
      busy.value = false;
    }
  };

  return (
    <dialog ref={dialog} aria-labelledby="release-title" onClose={() => close()}>
      <h2 id="release-title">Release this lock by force?</h2>
      <p>
        <Text of={lockKey.slice(0, MOST_OF_KEY)} cut={lockKey.length > MOST_OF_KEY} /> is held by
      </p>
      <ul>
        {holders.slice(0, MOST_NAMED).map((holder) => (
          <li key={holder.id}>
            <b>
              <Text of={holder.owner} />
            </b>
            , for <Since at={holder.since} />
          </li>
        ))}
        {holders.length > MOST_NAMED && <li>and {holders.length - MOST_NAMED} more</li>}
      </ul>
      <p>
        {several
          ? 'The holders notice the loss only at their next renewals, and continue to work until then. '
          : 'The holder notices the loss only at its next renewal, and continues to work until then. '}
        Meanwhile another caller may get the lock, so two may do the same work at the same time. Only writes
        that check the fencing token are refused. A holder that has crashed loses its lock without a release,
        when its ttl has passed.
      </p>
      {failure.value !== '' && (
        <p class="bad" role="alert">
          {failure.value}
        </p>
      )}
      <div class="actions">
        <button type="button" onClick={() => close()} autofocus>
          Leave it
        </button>
        <button type="button" class="danger" disabled={busy.value} onClick={() => void go()}>
          Release {several ? `${holders.length} holders` : 'it'}
        </button>
      </div>
    </dialog>
  );
}
