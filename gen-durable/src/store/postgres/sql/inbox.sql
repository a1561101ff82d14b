-- What instances were sent and have not consumed, a bounded number each: what they wait for before other signals.
--
-- $1 ids, $2 how many of each
select b.id, found.seq, found.name, found.payload::text, found.latest
from pg_catalog.unnest($1::uuid[]) as b(id)
cross join lateral (select i.awaits from {schema}.instances i where i.id = b.id offset 0) i
cross join lateral (
    select s.seq, s.name, s.payload, max(s.seq) over () as latest
    from (
        select s.seq, s.name, s.payload from {schema}.signals s where s.instance_id = b.id and not s.consumed offset 0
    ) s
    order by coalesce(s.name = any(i.awaits), false) desc, s.seq
    limit $2::bigint
) found
order by b.id, found.seq
