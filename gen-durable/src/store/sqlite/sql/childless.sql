-- Notes of instances that ended and take their children with them that all of these are cancelled, or asked to end.
update gen_durable_instances
set cascades = 0
where rowid in (
    select i.rowid
    from gen_durable_instances i indexed by gen_durable_instances_cascades
    where i.cascades
        and i.finished_at is not null
        and not exists (
            select 1
            from gen_durable_instances c indexed by gen_durable_instances_live_children
            where c.parent_id = i.id
                and c.parent_id is not null
                and c.status not in ('done', 'failed', 'cancelled')
                and not (c.status = 'executing' and c.cancel_requested and c.cascades)
        )
)
