-- When the next delayed row is due, waits not counted. For tests, where delays collapse.
select min(i.eligible_at)
from gen_durable_instances i
where i.status = 'scheduled'
