-- Counts the signals that instances were sent, and ends the waits for them.
--
-- ?1 now, ?2 instances: arrays of id, how many signals, whether it waits for one of them
--
-- Closes: a signal that arrives while its target parks. Both write in one transaction that looked before: whoever comes
-- second sees the other.
update gen_durable_instances as i
set
    inbox = i.inbox + (b.value ->> 1),
    status = case
        when not b.value ->> 2 then i.status
        when i.machine_id in (select m.id from gen_durable_machines m where m.set_aside) then 'blocked'
        else 'ready'
    end,
    eligible_at = case when b.value ->> 2 then ?1 else i.eligible_at end,
    timed_out = case when b.value ->> 2 then 0 else i.timed_out end
from json_each(?2) b
where i.id = unhex(b.value ->> 0)
