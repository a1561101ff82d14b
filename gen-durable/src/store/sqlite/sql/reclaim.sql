-- Returns rows of dead or missing workers to their queues, charged with a crash, at their old place.
--
-- ?1 limit
update gen_durable_instances
set status = 'ready', attempt = attempt + 1, failures = failures + 1, crashes = crashes + 1
where rowid in (
    select i.rowid
    from gen_durable_instances i indexed by gen_durable_instances_claims
    where i.status = 'executing'
        and not exists (select 1 from gen_durable_workers w where w.id = i.claimed_by and not w.dead)
    limit ?1
)
returning claimed_by, queue
