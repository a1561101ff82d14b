-- Deletes consumed signals without a key.
--
-- ?1 signals: arrays of instance, number
delete from gen_durable_signals
where seq in (
    select s.seq
    from json_each(?1) b
    cross join gen_durable_signals s on s.seq = b.value ->> 1
    where +s.instance_id = unhex(b.value ->> 0) and s.dedup_key is null
)
