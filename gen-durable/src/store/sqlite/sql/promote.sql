-- Makes due rows ready, and those whose wait timed out.
--
-- ?1 now, ?2 limit
--
-- Closes: a signal against the timeout. Whoever writes first ends the wait; the other finds a row that does not wait.
update gen_durable_instances
set
    status = case
        when machine_id in (select m.id from gen_durable_machines m where m.set_aside) then 'blocked'
        else 'ready'
    end,
    timed_out = timed_out or status = 'waiting'
where rowid in (
    select i.rowid
    from gen_durable_instances i indexed by gen_durable_instances_due
    where i.status in ('scheduled', 'waiting') and i.eligible_at < 9223372036854775807 and i.eligible_at <= ?1
    order by i.eligible_at
    limit ?2
)
returning queue
