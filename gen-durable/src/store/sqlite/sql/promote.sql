-- Makes due rows ready.
--
-- ?1 now, ?2 limit
update gen_durable_instances
set status = case
    when machine_id in (select m.id from gen_durable_machines m where m.set_aside) then 'blocked'
    else 'ready'
end
where rowid in (
    select i.rowid
    from gen_durable_instances i indexed by gen_durable_instances_due
    where i.status = 'scheduled' and i.eligible_at <= ?1
    order by i.eligible_at
    limit ?2
)
returning queue
