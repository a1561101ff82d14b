-- Deletes instances past retention, those that ended first before others.
--
-- ?1 the end before which an instance is past retention, ?2 limit
delete from gen_durable_instances
where rowid in (
    select i.rowid
    from gen_durable_instances i indexed by gen_durable_instances_sweep
    where i.finished_at <= ?1
    order by i.finished_at
    limit ?2
)
