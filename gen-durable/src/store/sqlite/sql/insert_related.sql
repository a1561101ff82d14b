-- Inserts instances with correlation keys, or children.
--
-- ?1 now, ?2 instances: arrays of id, machine, step, state, queue, priority, from when on it may run, trace context,
-- family, correlation key and its scope, parent and its fan-out
--
-- With keys it ends with `on conflict do nothing`. Closes: two inserts of one key. The index `gen_durable_instances_key`
-- decides, and `holders.sql` says who has it. Within a batch the first one wins.
--
-- With children it ends here. Closes: a parent that waits for ever. An id that is there is a violated constraint, and the
-- fan-out fails.
--
-- Plan: `limit -1` keeps the inner query to itself, so that the text of a row is made once and not for each column.
insert into gen_durable_instances (
    id, machine_id, step, state, queue, priority, eligible_at, status, trace_context, family, correlation_key,
    key_scope, parent_id, parent_round, created_at
)
select
    unhex(b.value ->> 0),
    b.value ->> 1,
    b.value ->> 2,
    b.value ->> 3,
    b.value ->> 4,
    b.value ->> 5,
    b.value ->> 6,
    case
        when b.value ->> 6 > ?1 then 'scheduled'
        when b.value ->> 1 in (select m.id from gen_durable_machines m where m.set_aside) then 'blocked'
        else 'ready'
    end,
    b.value ->> 7,
    b.value ->> 8,
    b.value ->> 9,
    b.value ->> 10,
    unhex(b.value ->> 11),
    b.value ->> 12,
    ?1
from (select r.value from json_each(?2) r limit -1) b
where true
