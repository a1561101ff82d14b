-- Tells parents of children that have ended: each child once, for the fan-out that it belongs to.
--
-- $1 children
--
-- Locks: the children, then their parents in the order of their ids, `skip locked`: waits for nobody. A child whose
-- parent somebody holds stays untold, and is told later.
--
-- Closes: the last children at the same time. The count is kept in the parent's row, whose latest version the update
-- by id reads, as it is locked before. A parent that has gone on, or fanned out anew, is not told.
with ended as materialized (
    select found.*
    from pg_catalog.unnest($1::uuid[]) as b(id)
    cross join lateral (
        select i.ctid as address, i.parent_id, i.parent_round, pg_catalog.cardinality($1::uuid[]) as wanted
        from {schema}.instances i
        where i.id = b.id
            and i.parent_id is not null
            and not i.joined
            and i.status in ('done', 'failed', 'cancelled')
        for no key update skip locked
    ) found
),
parents as materialized (
    select p.parent_id as id, found.id is null and not exists (select from {schema}.instances i where i.id = p.parent_id)
        as gone, found.id is not null as locked
    from (select distinct e.parent_id from ended e order by e.parent_id) p
    left join lateral (
        select i.id from {schema}.instances i where i.id = p.parent_id for no key update skip locked
    ) found on true
),
told as (
    update {schema}.instances i
    set joined = true
    from ended e
    join parents p on p.id = e.parent_id
    where i.ctid = e.address and (p.locked or p.gone) and e.wanted = pg_catalog.cardinality($1::uuid[])
    returning i.parent_id, i.parent_round
),
woken as (
    update {schema}.instances i
    set
        children_pending = i.children_pending - n.ended,
        status = case
            when i.children_pending > n.ended then 'joining'
            when i.machine_id = any(array(select m.id from {schema}.machines m where m.set_aside)) then 'blocked'
            else 'ready'
        end::{schema}.status,
        eligible_at = now()
    from (
        select t.parent_id, t.parent_round, count(*)::int as ended from told t group by t.parent_id, t.parent_round
    ) n
    where i.id = n.parent_id and i.round = n.parent_round and i.status = 'joining'
    returning i.queue, i.status
)
select
    array(select distinct w.queue from woken w where w.status = 'ready') as queues,
    (select count(*) from ended) > (select count(*) from told) as left_over
