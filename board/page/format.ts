/** Writes milliseconds for people, in the same form as the command `npx nestjs-redlock`. */
export function duration(milliseconds: number): string {
  if (milliseconds < 1_000) return `${Math.max(0, Math.round(milliseconds / 100) * 100)} ms`;
  const seconds = milliseconds / 1_000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

const TWO = '2-digit';

/** The parts of a time of the day that are shown. */
const PARTS = {
  minute: { hour: TWO, minute: TWO },
  second: { hour: TWO, minute: TWO, second: TWO },
  millisecond: { hour: TWO, minute: TWO, second: TWO, fractionalSecondDigits: 3 },
} as const;

/** A time of the day, by the clock of the browser. */
export function clock(at: number, to: keyof typeof PARTS = 'second'): string {
  return new Date(at).toLocaleTimeString(undefined, { ...PARTS[to], hourCycle: 'h23' });
}

/** The time of the day of a moment within a day from now, and otherwise its date, too, by the clock of the browser. */
export function soon(at: number, now: number): string {
  const time = clock(at, 'minute');
  if (Math.abs(at - now) < 86_400_000) return time;
  return `${new Date(at).toLocaleDateString(undefined, { month: 'short', day: 'numeric' })} ${time}`;
}

/** A text of at most `most` characters, without its middle: the beginning and the end of a key tell it from others. */
export function shortened(text: string, most: number): string {
  if (text.length <= most) return text;
  const end = Math.floor((most - 1) / 2);
  return `${text.slice(0, most - 1 - end)}…${text.slice(text.length - end)}`;
}

/** The command that shows a lock in a terminal. The key is one word of bash or zsh, whatever characters it has. */
export function commandFor(key: string): string {
  return `npx nestjs-redlock inspect ${quotedForShell(key)}`;
}

function quotedForShell(text: string): string {
  if (/^[\w.,:/@%+=-]+$/.test(text) && !text.startsWith('-')) return text;
  if (!/[\p{Cc}\p{Cf}]/u.test(text)) return `'${text.replaceAll("'", String.raw`'\''`)}'`;
  const escaped = text.replaceAll(/[\\'\p{Cc}\p{Cf}]/gu, (character) => {
    const code = character.codePointAt(0) ?? 0;
    if (character === '\\' || character === "'") return `\\${character}`;
    return code < 0x80
      ? `\\x${code.toString(16).padStart(2, '0')}`
      : `\\U${code.toString(16).padStart(8, '0')}`;
  });
  return `$'${escaped}'`;
}
