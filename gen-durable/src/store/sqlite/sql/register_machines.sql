-- Adds machines that are new, and notes that they were seen.
--
-- ?1 now, ?2 machines: arrays of name, version
insert into gen_durable_machines (name, version, first_seen, last_seen)
select b.value ->> 0, b.value ->> 1, ?1, ?1
from json_each(?2) b
where true
on conflict (name, version) do update set last_seen = excluded.last_seen
