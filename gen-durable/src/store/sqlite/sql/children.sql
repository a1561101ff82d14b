-- The children of a fan-out that are of a machine, in the order of their ids.
--
-- ?1 parent, ?2 its fan-out, ?3 name of the machine, ?4 the id after which to begin or null, ?5 limit
--
-- Plan: `gen_durable_instances_children` in order; children of other machines are passed over.
select i.id, m.version, i.status, i.output, i.error
from gen_durable_instances i indexed by gen_durable_instances_children
cross join gen_durable_machines m on m.id = i.machine_id
where i.parent_id is not null
    and i.parent_id = ?1
    and i.parent_round = ?2
    and i.id > coalesce(?4, x'')
    and m.name = ?3
order by i.id
limit ?5
