-- Deletes the rows of a batch that are done, that the worker owns and that nobody needs: nobody watches them, they have no
-- parent, and their key is not reserved. Runs before `flush.sql`, and leaves to `coordinate.sql` what that does.
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
        and i.parent_id is null
        and i.key_scope is not 'row'
        and i.inbox = 0
        and not i.cancel_requested
        and not exists (select 1 from gen_durable_signals s where s.instance_id = i.id and s.dedup_key is not null)
)
returning id, 'done', watched
