-- Says of rows that a flush missed which of them had this very outcome committed before, and where they stand. The
-- others are stale.
--
-- ?1 worker, ?2 rows: arrays of id, claim, revision
select i.id, i.status, i.watched
from json_each(?2) b
cross join gen_durable_instances i on i.id = unhex(b.value ->> 0)
where +i.claimed_by = ?1
    and i.claim = b.value ->> 1
    and i.revision = (b.value ->> 2) + 1
