-- Notes that parents were told of these children's ends.
--
-- ?1 limit
update gen_durable_instances
set joined = 1
where rowid in (
    select c.rowid
    from gen_durable_instances c indexed by gen_durable_instances_unjoined
    where c.parent_id is not null and not c.joined and c.status in ('done', 'failed', 'cancelled')
    order by c.parent_id, c.rowid
    limit ?1
)
