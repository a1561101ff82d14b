-- How many instances there are of each machine, step and status. Reads the whole table.
select m.name, m.version, c.step, c.status::text, c.count
from (
    select i.machine_id, i.step, i.status, count(*)
    from {schema}.instances i
    group by i.machine_id, i.step, i.status
) c
left join {schema}.machines m on m.id = c.machine_id
order by m.name, m.version, c.step, c.status
