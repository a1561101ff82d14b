-- Lets a parent that still waits for others of its fan-out wait for a failed child again. `retry.sql` follows in the same
-- transaction.
--
-- ?1 the child
update gen_durable_instances as i
set children_pending = i.children_pending + 1
from gen_durable_instances c
where c.id = ?1
    and +c.status = 'failed'
    and c.joined
    and i.id = c.parent_id
    and +i.status = 'joining'
    and i.round = c.parent_round
