-- Makes the delayed row that is due next ready before its time. For tests, where delays collapse.
--
-- $1 queues, $2 machines
--
-- Locks: `for no key update skip locked`; waits for nobody.
with soonest as materialized (
    select i.ctid as address
    from {schema}.instances i
    where i.status = 'scheduled' and i.queue = any ($1::text[]) and i.machine_id = any ($2::int[])
    order by i.eligible_at
    limit 1
    for no key update skip locked
)
update {schema}.instances i
set status = 'ready', eligible_at = now()
from soonest
where i.ctid = soonest.address
