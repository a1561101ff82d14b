-- Whether the most urgent due row of a queue runs alone.
--
-- ?1 queue, ?2 machines this engine can run, ?3 crashes from which on a row runs alone
select coalesce(
    (
        select i.crashes >= ?3
        from gen_durable_instances i indexed by gen_durable_instances_pick
        where i.status = 'ready'
            and i.queue = ?1
            and +i.machine_id in (select m.value from json_each(?2) m)
        order by i.priority, i.eligible_at
        limit 1
    ),
    0
)
