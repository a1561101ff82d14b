-- Takes consumed signals with a key out of the inbox, and keeps the key so that it tells redeliveries.
--
-- ?1 signals: arrays of instance, number
update gen_durable_signals
set consumed = 1, payload = null
where seq in (
    select s.seq
    from json_each(?1) b
    cross join gen_durable_signals s on s.seq = b.value ->> 1
    where +s.instance_id = unhex(b.value ->> 0) and s.dedup_key is not null
)
