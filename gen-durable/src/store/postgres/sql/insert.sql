-- Inserts instances.
--
-- Parallel arrays: $1 id, $2 machine, $3 step, $4 state, $5 queue, $6 priority, $7 delay in microseconds, $8 instant
-- instead of a delay, $9 trace context
--
-- A row whose id is there came with an earlier try whose answer was lost: then this follows once more and leaves such
-- rows alone. Being prepared for them costs a log record and a second look at the primary key for every row, so it is
-- not done at first.
insert into {schema}.instances (id, machine_id, step, state, queue, priority, eligible_at, status, trace_context)
select
    b.id, b.machine_id, b.step, b.state::json, b.queue, b.priority, due.instant,
    case
        when due.instant > now() then 'scheduled'
        when b.machine_id = any(array(select m.id from {schema}.machines m where m.set_aside)) then 'blocked'
        else 'ready'
    end::{schema}.status,
    b.trace_context
from unnest(
    $1::uuid[], $2::int[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::bigint[], $8::timestamptz[],
    $9::text[]
) as b(id, machine_id, step, state, queue, priority, delay, instant, trace_context)
cross join lateral (select coalesce(b.instant, now() + b.delay * interval '1 microsecond') as instant) due
{end}
