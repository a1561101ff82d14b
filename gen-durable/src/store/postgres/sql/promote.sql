-- Makes due rows ready, and those whose wait timed out, and says in how many microseconds the next one is due.
--
-- $1 limit
--
-- Locks: `for no key update skip locked` in index order; waits for nobody.
--
-- The next one is the first row behind as many as were promoted. When somebody else held a due row, or changed it between
-- this statement's snapshot and its lock, that is another due one: the answer is then not positive, and says that there
-- is more.
with due as materialized (
    select i.ctid as address, $1::bigint as wanted
    from {schema}.instances i
    where i.status in ('scheduled', 'waiting') and isfinite(i.eligible_at) and i.eligible_at <= now()
    order by i.eligible_at
    limit $1::bigint
    for no key update skip locked
),
promoted as (
    update {schema}.instances i
    set
        status = case
            when i.machine_id = any(array(select m.id from {schema}.machines m where m.set_aside)) then 'blocked'
            else 'ready'
        end::{schema}.status,
        timed_out = i.timed_out or i.status = 'waiting'
    from due
    where i.ctid = due.address and due.wanted = $1
    returning i.queue
)
select
    (select count(*) from promoted) as count,
    array(select distinct p.queue from promoted p) as queues,
    (
        select (extract(epoch from i.eligible_at - now()) * 1000000)::bigint
        from {schema}.instances i
        where i.status in ('scheduled', 'waiting') and isfinite(i.eligible_at)
        order by i.eligible_at
        offset (select count(*) from promoted)
        limit 1
    ) as next_due
