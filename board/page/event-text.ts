import type { HistoryEntry } from '../../lib/board/live/messages.js';
import { duration } from './format.js';

/** A shorter wait is not mentioned: it would be 0 ms in words. */
const SHORTEST_WAIT_MS = 50;

/** The start of an event. */
export function startOf(entry: HistoryEntry): number {
  if ('at' in entry) return entry.at;
  return entry.kind === 'held' ? (entry.asked ?? entry.from) : entry.from;
}

/** The end of an event; `now` if it lasts. */
export function endOf(entry: HistoryEntry, now: number): number {
  return 'at' in entry ? entry.at : (entry.to ?? now);
}

const ENDS = { released: 'released', lost: 'lost', ended: 'then ended' } as const;
const OUTCOMES = {
  held: 'in vain',
  unavailable: 'then too few nodes voted',
  aborted: 'then gave up',
} as const;
const REASONS = {
  held: 'the lock was held',
  'tick-ran': 'its tick had run',
  shutdown: 'shutting down',
} as const;

/** Describes an event in words. */
export function eventText(entry: HistoryEntry, now: number): string {
  switch (entry.kind) {
    case 'held': {
      const { asked, from, to, end } = entry;
      const wait = asked === undefined ? 0 : from - asked;
      const waited = wait < SHORTEST_WAIT_MS ? '' : `waited ${duration(wait)}, then `;
      const outcome = to === undefined ? 'holds it still' : ENDS[end ?? 'ended'];
      return `${waited}held ${duration((to ?? now) - from)}, ${outcome}`;
    }
    case 'waited':
      return `waited ${duration(entry.to - entry.from)}, ${OUTCOMES[entry.outcome]}`;
    case 'skipped':
      return `skipped, ${REASONS[entry.reason]}`;
    case 'unconfirmed':
      return 'too few nodes voted for the renewal';
    case 'forced':
      return 'ended it by force';
  }
}
