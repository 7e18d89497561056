import type { LabEvent, RunRecord } from './lab-event.js';
import type { StoreChoice } from './store-choices.js';

/** The first message to a page. */
export interface LabHello {
  readonly type: 'hello';
  readonly records: readonly RunRecord[];
  readonly scenarios: readonly { readonly number: number; readonly title: string }[];
  /** The stores that the playground offers. */
  readonly stores: readonly StoreChoice[];
}

/** A message to a page, over its event stream. */
export type LabMessage =
  | LabHello
  | { readonly type: 'run'; readonly record: RunRecord }
  | { readonly type: 'event'; readonly run: number; readonly event: LabEvent }
  | { readonly type: 'end'; readonly record: Omit<RunRecord, 'events'> };
