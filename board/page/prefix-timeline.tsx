import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { type HistoryEntry, MOST_OF_PREFIX } from '../../lib/board/live/messages.js';
import { fetchHistory } from './connection.js';
import { owner, prefix, search } from './filter.js';
import { TimelineView } from './timeline-view.js';

/** Shows the events of all locks whose keys begin with the entered prefix, and that the search and the owner match. */
export function PrefixTimeline() {
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
  const [sought, name] = [search.value.toLowerCase(), owner.value.toLowerCase()];
  const fitting = history.value.filter(({ key, who }) => {
    const process = who.toLowerCase();
    return process.includes(name) && (key.toLowerCase().includes(sought) || process.includes(sought));
  });
  return (
    <TimelineView
      key={[text, sought, name].join('\n')}
      title={text === '' ? 'All locks' : `Locks that begin with ${text}`}
      history={fitting}
      back={back.value}
      setBack={(milliseconds) => (back.value = milliseconds)}
      note={
        history.value.length < MOST_OF_PREFIX
          ? undefined
          : `Only the latest ${MOST_OF_PREFIX} events are here. Enter the beginning of a key to see earlier ones.`
      }
    />
  );
}
