-- Returns rows of dead or missing workers to their queues, charged with a crash, at their old place. Those that were
-- to be cancelled are.
--
-- $1 limit
--
-- Locks: `for no key update skip locked`: any number of reapers at once share the work and wait for nobody.
--
-- Closes: an outcome that commits between the look and the write. The locking query judges status and owner
-- again on the version that it locks. That the owner is dead needs no second look: the dead stay dead, and
-- the id of a missing worker is never used again.
--
-- Plan: jumps from owner to owner on `instances_claims`, so it costs the same with a million rows in flight. The
-- range of one owner has an order to keep, which `=` has not: without it, a planner that knows that nearly all
-- rows are executing reads the table from its beginning.
with recursive holders (worker) as (
    (select i.claimed_by from {schema}.instances i where i.status = 'executing' order by i.claimed_by limit 1)
    union all
    select (
        select i.claimed_by
        from {schema}.instances i
        where i.status = 'executing' and i.claimed_by > h.worker
        order by i.claimed_by
        limit 1
    )
    from holders h
    where h.worker is not null
),
lost as materialized (
    select h.worker
    from holders h
    where h.worker is not null
        and not exists (select from {schema}.workers w where w.id = h.worker and not w.dead)
),
picked as materialized (
    select found.address, $1::bigint as wanted
    from lost
    cross join lateral (
        select i.ctid as address
        from {schema}.instances i
        where i.status = 'executing' and i.claimed_by between lost.worker and lost.worker
        order by i.claimed_by
        limit $1::bigint
        for no key update skip locked
    ) found
    limit $1::bigint
),
returned as (
    update {schema}.instances i
    set
        status = case when i.cancel_requested then 'cancelled' else 'ready' end::{schema}.status,
        finished_at = case when i.cancel_requested then now() end,
        inbox = case when i.cancel_requested then 0 else i.inbox end,
        attempt = i.attempt + 1,
        failures = i.failures + 1,
        crashes = i.crashes + 1
    from picked
    where i.ctid = picked.address and picked.wanted = $1
    returning i.id, i.claimed_by, i.queue, i.cancel_requested, picked.wanted
),
letters as materialized (
    select found.address, r.wanted
    from returned r
    cross join lateral (select s.ctid as address from {schema}.signals s where s.instance_id = r.id offset 0) found
    where r.cancel_requested
),
cleared as (
    delete from {schema}.signals s using letters where s.ctid = letters.address and letters.wanted = $1
)
select r.claimed_by, r.queue, count(*) from returned r group by r.claimed_by, r.queue
