-- Deletes instances past retention, those that ended first before others.
--
-- $1 retention in microseconds, $2 limit
--
-- Locks: `for update skip locked` in index order: any number of sweeps at once share the work.
with ended as materialized (
    select i.ctid as address, $2::bigint as wanted
    from {schema}.instances i
    where i.status in ('done', 'failed', 'cancelled')
        and i.finished_at <= now() - $1::bigint * interval '1 microsecond'
    order by i.finished_at
    limit $2::bigint
    for update skip locked
)
delete from {schema}.instances i
using ended
where i.ctid = ended.address and ended.wanted = $2
