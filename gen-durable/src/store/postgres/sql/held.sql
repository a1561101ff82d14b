-- The rows that a worker owns.
--
-- $1 worker
select i.id, i.claim, i.revision
from {schema}.instances i
where i.status = 'executing' and i.claimed_by = $1
