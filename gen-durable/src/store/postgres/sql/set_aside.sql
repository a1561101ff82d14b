-- Takes ready rows of machines that are set aside out of the way of claims.
--
-- $1 limit
--
-- Locks: `for no key update skip locked`; waits for nobody.
--
-- Plan: reads the part of `instances_pick` that is there, for each machine that is set aside and has rows: the
-- machine is its last column, so that other rows are passed over within the index.
with picked as materialized (
    select found.address, $1::bigint as wanted
    from {schema}.machines m
    cross join lateral (
        select i.ctid as address
        from {schema}.instances i
        where i.status = 'ready' and i.machine_id = m.id
        order by i.queue, i.priority, i.eligible_at
        limit $1::bigint
        for no key update skip locked
    ) found
    where m.set_aside
    limit $1::bigint
)
update {schema}.instances i
set status = 'blocked'
from picked
where i.ctid = picked.address and picked.wanted = $1
