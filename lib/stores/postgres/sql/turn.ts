import type { EntryPoint } from './sql-function.js';

/**
 * Runs the collected requests of a process in one statement, which is one transaction. Releases come first, then
 * extensions, then acquisitions, each in the order of the requests.
 *
 * keys     all keys of all requests; their rows are locked first, in an order that is the same in all processes
 * asked    `releases`: see `release_lease`; `extensions`: see `extend_leases`; `acquisitions`: see `acquire_lease`; each may
 *          be missing
 * Returns  `at`: the server's time when the rows were locked, in milliseconds since 1970; `released`: for each lease true if
 *          there are waiters; `extended`: for each lease true if it is held; `acquired`: the answers
 *
 * Missing rows are created only if there is an acquisition. `do update ... where false` locks an existing row and
 * changes nothing.
 */
export const TURN: EntryPoint = {
  signature: 'turn(keys text[], asked jsonb)',
  returns: 'jsonb',
  body: `
declare
  at timestamptz;
  request jsonb;
  released jsonb[] := '{}';
  acquired jsonb[] := '{}';
begin
  if asked ? 'acquisitions' then
    insert into locks (key) select distinct k collate "C" from unnest(keys) as k order by 1
      on conflict (key) do update set key = excluded.key where false;
  else
    perform 1 from locks l where l.key = any (keys) order by l.key for update;
  end if;
  at := clock_timestamp();
  for request in select value from jsonb_array_elements(asked -> 'releases') loop
    released := released || to_jsonb(release_lease(request, at));
  end loop;
  request := extend_leases(asked -> 'extensions', at);
  declare
    extended constant jsonb := request;
  begin
    for request in select value from jsonb_array_elements(asked -> 'acquisitions') loop
      acquired := acquired || acquire_lease(request, at);
    end loop;
    return jsonb_build_object('at', extract(epoch from at) * 1000, 'released', released, 'extended', extended,
      'acquired', acquired);
  end;
end`,
};
