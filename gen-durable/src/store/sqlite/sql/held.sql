-- The rows that a worker owns.
--
-- ?1 worker
select i.id, i.claim, i.revision
from gen_durable_instances i indexed by gen_durable_instances_claims
where i.status = 'executing' and i.claimed_by = ?1
