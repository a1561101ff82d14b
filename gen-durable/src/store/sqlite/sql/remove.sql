-- Deletes the rows of a batch that are done, that the worker owns and that nobody watches; runs before `flush.sql`.
--
-- ?1 worker, ?2 outcomes as in `flush.sql`
delete from gen_durable_instances
where rowid in (
    select i.rowid
    from json_each(?2) b
    cross join gen_durable_instances i on i.id = unhex(b.value ->> 0)
    where b.value ->> 3 = 'd'
        and not i.watched
        and +i.status = 'executing'
        and +i.claimed_by = ?1
        and i.claim = b.value ->> 1
        and i.revision = b.value ->> 2
)
returning id, watched
