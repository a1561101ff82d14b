-- Returns rows whose machine is no longer set aside to their queues, at their old place.
--
-- $1 limit
--
-- Locks: `for no key update skip locked` in index order; waits for nobody.
with picked as materialized (
    select found.address, $1::bigint as wanted
    from {schema}.machines m
    cross join lateral (
        select i.ctid as address
        from {schema}.instances i
        where i.status = 'blocked' and i.machine_id = m.id
        limit $1::bigint
        for no key update skip locked
    ) found
    where not m.set_aside
    limit $1::bigint
),
returned as (
    update {schema}.instances i
    set status = 'ready'
    from picked
    where i.ctid = picked.address and picked.wanted = $1
    returning i.queue
)
select r.queue, count(*) from returned r group by r.queue
