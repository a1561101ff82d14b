-- How many instances there are of each machine, step and status. Reads the whole table.
select m.name, m.version, c.step, c.status, c.count
from (
    select
        i.machine_id, i.step, i.status, count(*) as count,
        case i.status
            when 'scheduled' then 1
            when 'ready' then 2
            when 'blocked' then 3
            when 'executing' then 4
            when 'waiting' then 5
            when 'joining' then 6
            when 'done' then 7
            when 'failed' then 8
            else 9
        end as place
    from gen_durable_instances i
    group by i.machine_id, i.step, i.status
) c
left join gen_durable_machines m on m.id = c.machine_id
order by m.name, m.version, c.step, c.place
