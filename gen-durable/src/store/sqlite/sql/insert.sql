-- Inserts instances that have neither a key nor a parent.
--
-- ?1 now, ?2 instances: arrays of id, machine, step, state, queue, priority, from when on it may run, trace context
--
-- A row whose id is there came with an earlier try whose answer was lost: it is left alone.
--
-- Plan: `limit -1` keeps the inner query to itself, so that the text of a row is made once and not for each column.
insert into gen_durable_instances (
    id, machine_id, step, state, queue, priority, eligible_at, status, trace_context, created_at
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
    ?1
from (select r.value from json_each(?2) r limit -1) b
where true
on conflict (id) do nothing
