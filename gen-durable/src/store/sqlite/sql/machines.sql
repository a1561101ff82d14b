-- Ids of machines, in the order given.
--
-- ?1 machines: arrays of name, version
select m.id
from json_each(?1) b
cross join gen_durable_machines m on m.name = b.value ->> 0 and m.version = b.value ->> 1
order by b.key
