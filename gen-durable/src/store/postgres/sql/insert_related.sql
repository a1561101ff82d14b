-- Inserts instances with correlation keys, or children.
--
-- Parallel arrays: $1 id, $2 machine, $3 step, $4 state, $5 queue, $6 priority, $7 delay in microseconds, $8 instant
-- instead of a delay, $9 trace context, $10 family, $11 correlation key, $12 its scope, $13 parent, $14 round of the
-- parent
--
-- Locks: an insert waits for an open transaction that inserts the same key. So the keys come in one order, which keeps
-- two of these from waiting for each other, and `{patience}` bounds the wait where the engine would be the one to wait.
insert into {schema}.instances (
    id, machine_id, step, state, queue, priority, eligible_at, status, trace_context, family, correlation_key,
    key_scope, parent_id, parent_round
)
select
    b.id, b.machine_id, b.step, b.state::json, b.queue, b.priority, due.instant,
    case
        when due.instant > now() then 'scheduled'
        when b.machine_id = any(array(select m.id from {schema}.machines m where m.set_aside)) then 'blocked'
        else 'ready'
    end::{schema}.status,
    b.trace_context, b.family, b.correlation_key, b.key_scope::{schema}.key_scope, b.parent_id, b.parent_round
from unnest(
    $1::uuid[], $2::int[], $3::text[], $4::text[], $5::text[], $6::smallint[], $7::bigint[], $8::timestamptz[],
    $9::text[], $10::text[], $11::text[], $12::text[], $13::uuid[], $14::bigint[]
) with ordinality as b(
    id, machine_id, step, state, queue, priority, delay, instant, trace_context, family, correlation_key, key_scope,
    parent_id, parent_round, place
)
cross join lateral (select coalesce(b.instant, now() + b.delay * interval '1 microsecond') as instant) due
where {patience}
order by b.family, b.correlation_key, b.place
{end}
