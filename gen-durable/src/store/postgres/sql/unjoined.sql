-- Children that have ended and whose parents were not told.
--
-- $1 limit
select i.id
from {schema}.instances i
where i.parent_id is not null and not i.joined and i.status in ('done', 'failed', 'cancelled')
order by i.parent_id
limit $1
