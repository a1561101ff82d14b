-- In how many microseconds the next delayed row is due, waits not counted. For tests, where delays collapse.
select (extract(epoch from i.eligible_at - now()) * 1000000)::bigint
from {schema}.instances i
where i.status = 'scheduled'
order by i.eligible_at
limit 1
