-- Returns rows whose machine is no longer set aside to their queues, at their old place.
--
-- ?1 limit
update gen_durable_instances
set status = 'ready'
where rowid in (
    select i.rowid
    from gen_durable_instances i indexed by gen_durable_instances_blocked
    where i.status = 'blocked' and i.machine_id in (select m.id from gen_durable_machines m where not m.set_aside)
    limit ?1
)
returning queue
