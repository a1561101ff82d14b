-- Puts signals into inboxes, in the order given.
--
-- ?1 now, ?2 signals: arrays of target, name, payload, key or null
insert into gen_durable_signals (instance_id, name, payload, dedup_key, sent_at)
select unhex(b.value ->> 0), b.value ->> 1, b.value ->> 2, b.value ->> 3, ?1
from json_each(?2) b
order by b.key
