-- Deletes instances past retention with what they were sent, those that ended first before others. A child stays while
-- its parent may read it, and a parent while its children are to be cancelled.
--
-- $1 retention in microseconds, $2 limit
--
-- Plan: parents are looked up one by one, by a subquery that the planner cannot turn into a join with the whole table.
--
-- Locks: `for update skip locked` in index order: any number of sweeps at once share the work.
with ended as materialized (
    select i.ctid as address, $2::bigint as wanted
    from {schema}.instances i
    where i.status in ('done', 'failed', 'cancelled')
        and i.finished_at <= now() - $1::bigint * interval '1 microsecond'
        and not i.cascades
        and (
            i.parent_id is null
            or coalesce(
                (
                    select p.status in ('done', 'failed', 'cancelled')
                    from {schema}.instances p
                    where p.id = i.parent_id and p.round = i.parent_round
                ),
                true
            )
        )
    order by i.finished_at
    limit $2::bigint
    for update of i skip locked
),
swept as (
    delete from {schema}.instances i
    using ended
    where i.ctid = ended.address and ended.wanted = $2
    returning i.id, ended.wanted
),
letters as materialized (
    select found.address, swept.wanted
    from swept
    cross join lateral (select s.ctid as address from {schema}.signals s where s.instance_id = swept.id offset 0) found
),
cleared as (
    delete from {schema}.signals s using letters where s.ctid = letters.address and letters.wanted = $2
)
select count(*) from swept
