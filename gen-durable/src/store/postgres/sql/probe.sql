-- Reads instances.
--
-- $1 ids
select
    i.id, m.name, m.version, i.step, i.state::text, i.status::text, i.queue, i.priority, i.revision, i.attempt,
    i.failures, i.crashes, i.claimed_by, i.output::text, i.error, i.created_at, i.eligible_at, i.finished_at,
    i.watched
from pg_catalog.unnest($1::uuid[]) as b(id)
cross join lateral (select * from {schema}.instances i where i.id = b.id offset 0) i
left join {schema}.machines m on m.id = i.machine_id
