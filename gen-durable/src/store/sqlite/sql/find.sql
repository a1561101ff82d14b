-- Instances with a correlation key: live ones before others, the latest first.
--
-- ?1 family, ?2 correlation key, ?3 limit
select i.id
from gen_durable_instances i indexed by gen_durable_instances_address
where i.correlation_key is not null and i.family = ?1 and i.correlation_key = ?2
order by i.finished_at is not null, i.created_at desc, i.id desc
limit ?3
