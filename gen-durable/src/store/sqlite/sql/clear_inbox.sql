-- Deletes all signals of instances that ended.
--
-- ?1 ids
--
-- Plan: a signal is not consumed or has a key, so that it is in one of two small indexes.
delete from gen_durable_signals
where seq in (
    select s.seq
    from json_each(?1) b
    cross join gen_durable_signals s indexed by gen_durable_signals_inbox on s.instance_id = unhex(b.value)
    where not s.consumed
    union all
    select s.seq
    from json_each(?1) b
    cross join gen_durable_signals s indexed by gen_durable_signals_dedup on s.instance_id = unhex(b.value)
    where s.dedup_key is not null
)
