-- Whether there are children whose end their parent has not been told.
select exists (
    select 1
    from gen_durable_instances i indexed by gen_durable_instances_unjoined
    where i.parent_id is not null and not i.joined and i.status in ('done', 'failed', 'cancelled')
)
