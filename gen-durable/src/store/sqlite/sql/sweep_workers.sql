-- Deletes workers that died an hour ago or more and hold nothing. The hour is for people who look.
--
-- ?1 an hour ago, ?2 limit
delete from gen_durable_workers
where id in (
    select w.id
    from gen_durable_workers w
    where w.dead
        and w.beaten_at <= ?1
        and not exists (
            select 1 from gen_durable_instances i where i.status = 'executing' and i.claimed_by = w.id
        )
    limit ?2
)
