-- Whether there are instances that ended and have live children to take with them.
select exists (
    select 1
    from gen_durable_instances i indexed by gen_durable_instances_cascades
    where i.cascades and i.finished_at is not null
)
