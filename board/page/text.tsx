import { visible } from './format.js';

/** A text of others: never markup, apart from what is around it, and with nothing in it that is not seen. */
export function Text({ of, cut }: { of: string; cut?: boolean }) {
  return (
    <bdi class="text">
      {visible(of).map((piece) => (piece.escaped ? <span class="escaped">{piece.text}</span> : piece.text))}
      {cut && <span class="escaped">…</span>}
    </bdi>
  );
}
