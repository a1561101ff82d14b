-- Returns rows of dead or missing workers to their queues, charged with a crash, at their old place; those that somebody
-- asked to cancel are cancelled.
--
-- ?1 limit, ?2 now
update gen_durable_instances
set
    status = case when cancel_requested then 'cancelled' else 'ready' end,
    attempt = attempt + 1,
    failures = failures + 1,
    crashes = crashes + 1,
    finished_at = case when cancel_requested then ?2 end,
    inbox = case when cancel_requested then 0 else inbox end,
    children_pending = case when cancel_requested then null else children_pending end
where rowid in (
    select i.rowid
    from gen_durable_instances i indexed by gen_durable_instances_claims
    where i.status = 'executing'
        and not exists (select 1 from gen_durable_workers w where w.id = i.claimed_by and not w.dead)
    limit ?1
)
returning case when status = 'cancelled' then id end, claimed_by, queue
