-- Reads instances.
--
-- $1 ids
select
    i.id, m.name, m.version, i.step, i.state::text, i.status::text, i.queue, i.priority, i.revision, i.attempt,
    i.failures, i.crashes, i.claimed_by, i.output::text, i.error, i.created_at,
    case when isfinite(i.eligible_at) then i.eligible_at end, i.finished_at, i.watched, i.awaits, i.inbox,
    i.children_pending, i.parent_id, i.correlation_key,
    i.cancel_requested and i.status = 'executing'
from pg_catalog.unnest($1::uuid[]) as b(id)
cross join lateral (select * from {schema}.instances i where i.id = b.id offset 0) i
left join {schema}.machines m on m.id = i.machine_id
