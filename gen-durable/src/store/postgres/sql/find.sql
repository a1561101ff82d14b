-- The instances with a key, live ones before others, the latest first.
--
-- $1 family, $2 correlation key
select i.id
from {schema}.instances i
where i.family = $1 and i.correlation_key = $2
order by i.status in ('done', 'failed', 'cancelled'), i.id desc
limit 10
