-- Which instances have keys.
--
-- Parallel arrays: $1 family, $2 correlation key
select b.place, found.id
from unnest($1::text[], $2::text[]) with ordinality as b(family, correlation_key, place)
cross join lateral (
    select i.id
    from {schema}.instances i
    where i.family = b.family
        and i.correlation_key = b.correlation_key
        and (i.key_scope = 'row' or i.key_scope = 'live' and i.status not in ('done', 'failed', 'cancelled'))
    limit 1
) found
