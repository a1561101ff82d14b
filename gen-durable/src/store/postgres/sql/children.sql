-- Children of a fan-out, of one machine, in the order of their ids.
--
-- $1 parent, $2 round, $3 machine, $4 id after which to begin, $5 limit
select i.id, m.version, i.status::text, i.output::text, i.error
from {schema}.instances i
join {schema}.machines m on m.id = i.machine_id
where i.parent_id = $1
    and i.parent_round = $2
    and i.id > coalesce($4::uuid, '00000000-0000-0000-0000-000000000000'::uuid)
    and m.name = $3
order by i.id
limit $5
