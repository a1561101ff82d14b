-- Deletes workers that died an hour ago or more and hold nothing. The hour is for people who look.
--
-- $1 limit
--
-- A row that still executed under a deleted worker would be reclaimed all the same: a missing worker counts as dead.
with gone as materialized (
    select w.id
    from {schema}.workers w
    where w.dead
        and w.beaten_at <= now() - interval '1 hour'
        and not exists (
            select from {schema}.instances i where i.status = 'executing' and i.claimed_by = w.id
        )
    order by w.id
    limit $1::bigint
    for update skip locked
)
delete from {schema}.workers w using gone where w.id = gone.id
