-- Hands rows back to their queue, uncharged and at their old place, where the worker still owns them.
--
-- ?1 worker, ?2 rows: arrays of id, claim, revision
update gen_durable_instances
set status = 'ready'
where rowid in (
    select i.rowid
    from json_each(?2) b
    cross join gen_durable_instances i on i.id = unhex(b.value ->> 0)
    where +i.status = 'executing'
        and +i.claimed_by = ?1
        and i.claim = b.value ->> 1
        and i.revision = b.value ->> 2
)
