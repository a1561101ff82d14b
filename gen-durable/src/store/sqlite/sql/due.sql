-- When the next delayed row is due.
select min(i.eligible_at)
from gen_durable_instances i indexed by gen_durable_instances_due
where i.status = 'scheduled'
