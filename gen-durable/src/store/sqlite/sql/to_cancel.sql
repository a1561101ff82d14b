-- What a worker holds and is asked to cancel.
--
-- ?1 worker
select i.id
from gen_durable_instances i indexed by gen_durable_instances_cancel
where i.status = 'executing' and i.cancel_requested and i.claimed_by = ?1
