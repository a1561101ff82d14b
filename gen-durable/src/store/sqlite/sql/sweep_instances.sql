-- Deletes instances past retention, those that ended first before others; spares children that their parent may still
-- read, and instances whose children are still to be cancelled. They have no signals: those go when an instance ends.
--
-- ?1 the end before which an instance is past retention, ?2 limit
delete from gen_durable_instances
where rowid in (
    select i.rowid
    from gen_durable_instances i indexed by gen_durable_instances_sweep
    where i.finished_at <= ?1
        and not i.cascades
        and not exists (
            select 1
            from gen_durable_instances p
            where p.id = i.parent_id and p.round = i.parent_round and p.finished_at is null
        )
    order by i.finished_at
    limit ?2
)
