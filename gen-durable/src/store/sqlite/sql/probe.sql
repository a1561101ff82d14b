-- Reads instances.
--
-- ?1 ids
select
    i.id, m.name, m.version, i.step, i.state, i.status, i.queue, i.priority, i.revision, i.attempt, i.failures,
    i.crashes, i.claimed_by, i.output, i.error, i.created_at, i.eligible_at, i.finished_at, i.awaits, i.inbox,
    i.children_pending, i.parent_id, i.correlation_key,
    i.cancel_requested and i.status = 'executing'
from json_each(?1) b
cross join gen_durable_instances i on i.id = unhex(b.value)
left join gen_durable_machines m on m.id = i.machine_id
