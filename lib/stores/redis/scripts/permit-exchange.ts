import { LINGER_MS } from '../../../core/store-times.js';
import { RECORD } from '../record.js';
import { Fragment } from './fragment.js';
import { END_PERMIT, PERMIT, PERMIT_NAMES, PERMITS } from './permits.js';

/**
 * Lua text for a lease that accepts only the slots that it requests. If the lease holds a slot that it does not
 * request, the text frees all its slots, because the lease must get a slot of each key or none.
 *
 * If the text frees a slot, it sets `freed`. If a slot could not be freed, it sets `answer` to the error.
 */
export const GIVE_UP_SLOTS = new Fragment(
  {
    needs: [
      ...['answer', 'byte', 'call', 'exactly', 'freed', 'id', 'key', 'late', 'n', 'now'],
      ...['pcall', 'sub', 'wishes', 'young'],
    ],
  },
  `
  if exactly and late <= 0 and young <= 0 then
    -- The first pass looks for a slot that the lease holds but does not request. If there is one, the second pass frees
    -- all slots of the lease: it must get a slot of each key or none.
    local other = false
    for pass = 1, 2 do
      for i = 1, pass == 1 and n or other and n or 0 do
        ${PERMIT_NAMES.locals(['name', 'holders', 'details'])}
        local record, slot = pcall('GET', name)
        if record and not record.err and byte(record, 1) == ${RECORD.permits} then
          local kind, left = byte(record, ${PERMITS.kind}), call('PTTL', name)
          local held = left > ${LINGER_MS} or left == -1
          if held and kind == ${PERMITS.several} then
            local own, score = pcall('HGET', details, id), pcall('ZSCORE', holders, id)
            if own and not own.err and score and not score.err and tonumber(score) > now
              and byte(own, ${PERMIT.state}) ~= ${PERMITS.kept} then
              slot = tonumber(sub(own, ${PERMIT.slot.join(', ')}))
            end
          elseif held and kind == ${PERMITS.alone} and sub(record, ${RECORD.id.join(', ')}) == id then
            slot = tonumber(sub(record, ${PERMITS.slot.join(', ')}))
          end
        end
        if slot and pass == 1 then
          other = other or slot ~= tonumber(ARGV[wishes + i])
        elseif slot then
          ${END_PERMIT}
          answer, freed = failed, true
        end
      end
    end
  end
`,
);
