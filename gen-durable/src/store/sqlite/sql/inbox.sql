-- The signals that instances were sent and have not consumed, in the order in which they were sent; where there are too
-- many, those that the instance waited for before others.
--
-- ?1 ids, ?2 how many of each at most; the answer begins with the place of the id and ends with the number of the last
-- signal of all
--
-- Plan: ranks numbers and names in `gen_durable_signals_inbox`, and reads the payloads of those that are left.
with ranked as materialized (
    select
        b.key as place,
        s.seq,
        row_number() over (
            partition by b.key
            order by exists (select 1 from json_each(i.awaits) a where a.value = s.name) desc, s.seq
        ) as rank,
        max(s.seq) over (partition by b.key) as latest
    from json_each(?1) b
    cross join gen_durable_instances i on i.id = unhex(b.value)
    cross join gen_durable_signals s indexed by gen_durable_signals_inbox on s.instance_id = i.id
    where not s.consumed
)
select r.place, s.seq, s.name, s.payload, r.latest
from ranked r
cross join gen_durable_signals s on s.seq = r.seq
where r.rank <= ?2
order by r.place, r.seq
