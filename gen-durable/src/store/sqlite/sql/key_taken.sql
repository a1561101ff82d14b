-- Who has taken the key of an instance that ended.
--
-- ?1 id
--
-- Plan: the other one through `gen_durable_instances_key`, whose predicate this repeats.
select i.id
from gen_durable_instances e
cross join gen_durable_instances i indexed by gen_durable_instances_key
    on i.family = e.family and i.correlation_key = e.correlation_key
where e.id = ?1
    and e.key_scope = 'live'
    and (i.key_scope = 'row' or i.key_scope = 'live' and i.status not in ('done', 'failed', 'cancelled'))
