-- Who has the keys of instances that were to be inserted: themselves where they are there, since an earlier try.
--
-- Parallel arrays: $1 id, $2 family, $3 correlation key
select b.place, coalesce(earlier.id, holder.id)
from unnest($1::uuid[], $2::text[], $3::text[]) with ordinality as b(id, family, correlation_key, place)
left join lateral (select i.id from {schema}.instances i where i.id = b.id offset 0) earlier on true
left join lateral (
    select i.id
    from {schema}.instances i
    where i.family = b.family
        and i.correlation_key = b.correlation_key
        and (i.key_scope = 'row' or i.key_scope = 'live' and i.status not in ('done', 'failed', 'cancelled'))
    limit 1
) holder on true
where earlier.id is not null or holder.id is not null
