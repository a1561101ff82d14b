-- Who has the keys of instances that were to be inserted: themselves where they are there, now or since an earlier try.
--
-- ?1 instances: arrays of id, family, correlation key; the answer is in their order
--
-- Plan: one row each, through the primary key and `gen_durable_instances_key`, whose predicate this repeats.
select coalesce(
    (select i.id from gen_durable_instances i where i.id = unhex(b.value ->> 0)),
    (
        select i.id
        from gen_durable_instances i indexed by gen_durable_instances_key
        where i.family = b.value ->> 1
            and i.correlation_key = b.value ->> 2
            and (i.key_scope = 'row' or i.key_scope = 'live' and i.status not in ('done', 'failed', 'cancelled'))
    )
)
from json_each(?1) b
order by b.key
