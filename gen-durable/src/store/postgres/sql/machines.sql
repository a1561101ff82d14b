-- Notes that machines were seen, and returns their ids in the order given.
--
-- Parallel arrays: $1 name, $2 version
--
-- Waits for nobody: who else notes the same at this moment notes it well enough.
with noted as (
    update {schema}.machines m
    set last_seen = now()
    from (
        select m.id
        from {schema}.machines m
        join unnest($1::text[], $2::bigint[]) as b(name, version) on m.name = b.name and m.version = b.version
        for no key update of m skip locked
    ) seen
    where m.id = seen.id
)
select m.id
from unnest($1::text[], $2::bigint[]) with ordinality as b(name, version, place)
join {schema}.machines m on m.name = b.name and m.version = b.version
order by b.place
