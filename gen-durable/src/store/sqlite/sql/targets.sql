-- Finds the live instances that signals go to, and says what sending needs to know of them.
--
-- ?1 signals: arrays of name of the machine, id or null, correlation key or null, key of the signal or null; the answer is in their
-- order: the target or null, whether another has the key, too, whether the signal's key was used before, the target's
-- queue, whether it waits and for which signals, whether its machine is set aside
--
-- Plan: at most two rows for each signal, through the primary key or `gen_durable_instances_address`.
with found as materialized (
    select
        b.key as place,
        b.value ->> 3 as dedup_key,
        case
            when b.value ->> 1 is not null then (
                select i.rowid
                from gen_durable_instances i
                join gen_durable_machines m on m.id = i.machine_id
                where i.id = unhex(b.value ->> 1) and m.name = b.value ->> 0 and i.finished_at is null
            )
            else (
                select i.rowid
                from gen_durable_instances i indexed by gen_durable_instances_address
                where i.correlation_key is not null
                    and i.family = b.value ->> 0
                    and i.correlation_key = b.value ->> 2
                    and i.finished_at is null
                limit 1
            )
        end as target,
        (
            select i.rowid
            from gen_durable_instances i indexed by gen_durable_instances_address
            where i.correlation_key is not null
                and i.family = b.value ->> 0
                and i.correlation_key = b.value ->> 2
                and i.finished_at is null
            limit 1 offset 1
        ) is not null as is_ambiguous
    from json_each(?1) b
)
select
    i.id,
    f.is_ambiguous,
    exists (
        select 1
        from gen_durable_signals s
        where s.instance_id = i.id and s.dedup_key = f.dedup_key and s.dedup_key is not null
    ),
    i.queue,
    case when i.status = 'waiting' then i.awaits end,
    exists (select 1 from gen_durable_machines m where m.id = i.machine_id and m.set_aside)
from found f
left join gen_durable_instances i on i.rowid = f.target
order by f.place
