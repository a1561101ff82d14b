-- Which rows of a batch a worker still owns, and whether somebody asked to cancel them.
--
-- ?1 worker, ?2 rows: arrays of id, claim, revision
--
-- Closes: an outcome of a worker that lost its row. What follows in the same transaction rides on these answers.
--
-- Plan: driven by id, like `flush.sql`.
select i.id, i.cancel_requested
from json_each(?2) b
cross join gen_durable_instances i on i.id = unhex(b.value ->> 0)
where +i.status = 'executing'
    and +i.claimed_by = ?1
    and i.claim = b.value ->> 1
    and i.revision = b.value ->> 2
