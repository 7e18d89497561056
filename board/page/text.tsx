import { printablePieces } from '../../lib/core/printable.js';

/**
 * Shows a text that the page does not control, such as a key. It is never markup, does not change the direction of the
 * text around it, and has no hidden characters.
 */
export function Text({ of, cut }: { of: string; cut?: boolean }) {
  return (
    <bdi class="text">
      {printablePieces(of).map((piece) =>
        piece.escaped ? <span class="escaped">{piece.text}</span> : piece.text,
      )}
      {cut && <span class="escaped">…</span>}
    </bdi>
  );
}
