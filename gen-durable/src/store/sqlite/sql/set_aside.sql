-- Takes ready rows of machines that are set aside out of the way of claims.
--
-- ?1 limit
--
-- Plan: reads the index of claims, in which rows of other machines are passed over.
update gen_durable_instances
set status = 'blocked'
where rowid in (
    select i.rowid
    from gen_durable_instances i indexed by gen_durable_instances_pick
    where i.status = 'ready' and i.machine_id in (select m.id from gen_durable_machines m where m.set_aside)
    limit ?1
)
