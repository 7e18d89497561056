import { type KeyVersion, type KeyView, viewOf } from './key-view.js';

/** The largest number of views of each kind. A key that is not remembered is read once more. */
const MOST_REMEMBERED = 10_000;

/**
 * The last view of each key that this process has read. It knows since when the process has seen each holder, so it must not
 * be lost while the process waits for the end of a holder that may have crashed. Therefore views of free keys, and views
 * of keys that were only inspected, replace no view of a held key.
 */
export class RememberedViews {
  readonly #free = new Map<string, KeyView>();
  readonly #held = new Map<string, KeyView>();
  /** Views of held keys from inspections. They do not have the queues. */
  readonly #inspected = new Map<string, KeyView>();

  get(key: string): KeyView | undefined {
    return this.#held.get(key) ?? this.#free.get(key);
  }

  /** Remembers a version that was just received. */
  learn(version: KeyVersion): KeyView {
    const { key } = version;
    const view = viewOf(version, this.get(key), this.#inspected.get(key));
    for (const views of [this.#free, this.#held, this.#inspected]) views.delete(key);
    remember(isHeld(view) ? this.#held : this.#free, view);
    return view;
  }

  /** The view of a version that was just received, for people who look at locks. It may lack the queue. */
  inspect(version: KeyVersion): KeyView {
    const { key } = version;
    const view = viewOf(version, this.get(key), this.#inspected.get(key));
    this.#inspected.delete(key);
    if (isHeld(view)) remember(this.#inspected, view);
    return view;
  }
}

function isHeld({ record }: KeyView): boolean {
  return record.holders.length > 0;
}

/** Adds a view, which is not among the others, and removes the oldest one if there are too many. */
function remember(views: Map<string, KeyView>, view: KeyView): void {
  views.set(view.key, view);
  if (views.size <= MOST_REMEMBERED) return;
  const [oldest = ''] = views.keys();
  views.delete(oldest);
}
