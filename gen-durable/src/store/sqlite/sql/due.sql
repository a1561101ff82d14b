-- When the next delayed row is due, or the next wait times out.
--
-- Plan: the predicate is that of `gen_durable_instances_due`; the number is the end of time, of waits without a timeout.
select min(i.eligible_at)
from gen_durable_instances i indexed by gen_durable_instances_due
where i.status in ('scheduled', 'waiting') and i.eligible_at < 9223372036854775807
