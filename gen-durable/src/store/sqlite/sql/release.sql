-- Hands rows back to their queue, uncharged and at their old place, where the worker still owns them; those that somebody
-- asked to cancel are cancelled.
--
-- ?1 worker, ?2 rows: arrays of id, claim, revision, ?3 now
update gen_durable_instances
set
    status = case when cancel_requested then 'cancelled' else 'ready' end,
    finished_at = case when cancel_requested then ?3 end,
    inbox = case when cancel_requested then 0 else inbox end,
    children_pending = case when cancel_requested then null else children_pending end
where rowid in (
    select i.rowid
    from json_each(?2) b
    cross join gen_durable_instances i on i.id = unhex(b.value ->> 0)
    where +i.status = 'executing'
        and +i.claimed_by = ?1
        and i.claim = b.value ->> 1
        and i.revision = b.value ->> 2
)
returning case when status = 'cancelled' then id end
