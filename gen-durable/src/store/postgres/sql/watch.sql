-- Marks instances that have not ended, so that their end is told.
--
-- $1 ids, sorted
--
-- Locks: by primary key, `skip locked`. Commits asynchronously: a mark that a crash of the database loses was
-- made by somebody who also asks again after a while. Touches no indexed column.
with relaxed as materialized (
    select set_config('synchronous_commit', 'off', true) as setting
),
live as materialized (
    select found.*, relaxed.setting
    from relaxed
    cross join pg_catalog.unnest($1::uuid[]) as b(id)
    cross join lateral (
        select i.ctid as address, i.status, i.watched
        from {schema}.instances i
        where i.id = b.id
        for no key update skip locked
    ) found
)
update {schema}.instances i
set watched = true
from live
where i.ctid = live.address
    and live.setting = 'off'
    and not live.watched
    and live.status not in ('done', 'failed', 'cancelled')
